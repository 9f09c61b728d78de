//! `/sys/class/power_supply`: what does this machine run on right now?
//!
//! It sees the supplies that have a kernel driver (laptops, some UPS); most UPS communicate with a
//! daemon instead and are not seen. So most servers have [`Power::Unknown`], which does not mean
//! that there is mains power.

use super::read::{self, Root};

/// The most supplies that are read.
const SUPPLIES_MAX: usize = 64;

/// The power source of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Power {
    /// Mains power, as an adapter or a battery that is not being discharged reports.
    Mains,
    /// A battery, as this supply reports.
    Battery(String),
    /// No supply reports it.
    #[default]
    Unknown,
}

impl Power {
    /// Reads the power source. This may wait for a driver.
    #[must_use]
    pub fn read(root: &Root) -> Self {
        let folder = root.sys.join("class/power_supply");
        let names = read::names(&folder).unwrap_or_default();
        let mut told = Supplies::default();
        for name in names.into_iter().take(SUPPLIES_MAX) {
            let of = |file: &str| read::value(&folder.join(&name).join(file)).unwrap_or_default();
            // Batteries of mice and keyboards are left out.
            if of("scope") != "Device" {
                told.add(
                    &read::clean(&name),
                    &of("type"),
                    &of("online"),
                    &of("status"),
                );
            }
        }
        told.judge()
    }

    /// The word for it in status and metrics.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Mains => "mains",
            Self::Battery(_) => "battery",
            Self::Unknown => "unknown",
        }
    }

    /// The supply that reports a battery.
    #[must_use]
    pub fn supply(&self) -> Option<&str> {
        match self {
            Self::Battery(supply) => Some(supply),
            Self::Mains | Self::Unknown => None,
        }
    }
}

/// The states of the supplies (Linux, `Documentation/ABI/testing/sysfs-class-power`).
#[derive(Default)]
struct Supplies {
    /// A UPS that feeds this machine from its battery.
    ups: Option<String>,
    /// A battery that is being discharged.
    discharging: Option<String>,
    /// There is a battery that is not being discharged.
    rests: bool,
    /// There is an adapter that gives power.
    online: bool,
    /// An adapter that gives no power.
    offline: Option<String>,
    /// There is an adapter that does not report whether it gives power.
    silent: bool,
}

impl Supplies {
    fn add(&mut self, name: &str, kind: &str, online: &str, status: &str) {
        let first = |place: &mut Option<String>| {
            place.get_or_insert_with(|| name.to_owned());
        };
        match (kind, online, status) {
            // 2: one whose voltage can be chosen.
            ("Mains" | "USB", "1" | "2", _) => self.online = true,
            ("Mains", "0", _) => first(&mut self.offline),
            ("Mains", _, _) => self.silent = true,
            ("UPS", _, "Discharging") => first(&mut self.ups),
            ("Battery", _, "Discharging") => first(&mut self.discharging),
            ("UPS" | "Battery", _, "Charging" | "Full" | "Not charging") => self.rests = true,
            _ => {}
        }
    }

    fn judge(self) -> Power {
        // A UPS feeds the adapter, whose power then comes from the UPS's battery. A battery may be
        // discharged although there is mains power, if the adapter is too weak.
        match (self.ups, self.discharging, self.offline) {
            (Some(ups), _, _) => Power::Battery(ups),
            _ if self.online => Power::Mains,
            (_, Some(battery), _) => Power::Battery(battery),
            _ if self.silent => Power::Unknown,
            (_, _, Some(adapter)) => Power::Battery(adapter),
            _ if self.rests => Power::Mains,
            _ => Power::Unknown,
        }
    }
}
