//! `/sys/class/power_supply`: does this machine run on a battery right now?
//!
//! Sees the supplies that have a kernel driver (laptops, UPS by HID); most UPS talk to a daemon
//! instead and are not seen. So "no" means "not that we know".

use super::read::{self, Root};

/// Supplies that are looked at.
const SUPPLIES_MAX: usize = 64;

/// The supply that says so, if the machine runs on a battery.
pub(super) fn on_battery(root: &Root) -> Option<String> {
    let folder = root.sys.join("class/power_supply");
    let mut mains = Vec::new();
    let mut discharging = None;
    for name in read::names(&folder)?.into_iter().take(SUPPLIES_MAX) {
        let of = |file: &str| read::value(&folder.join(&name).join(file)).unwrap_or_default();
        // Batteries of mice and keyboards.
        if of("scope") == "Device" {
            continue;
        }
        match of("type").as_str() {
            "Mains" => mains.push((of("online") == "0", read::clean(&name))),
            "UPS" | "Battery" if of("status") == "Discharging" => {
                discharging = discharging.or(Some(read::clean(&name)));
            }
            _ => {}
        }
    }
    let all_off = !mains.is_empty() && mains.iter().all(|(off, _)| *off);
    discharging.or_else(|| mains.into_iter().next().filter(|_| all_off).map(|(_, n)| n))
}
