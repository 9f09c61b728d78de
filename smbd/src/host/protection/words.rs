//! An assessment as words, status and metrics.

use super::{Assessment, Cache, Device, Verdict};
use crate::{
    answers::{DeviceStatus, FindingStatus, ProtectionStatus},
    config::Protection,
    metrics::exposition::Page,
};

impl Verdict {
    /// The word in logs, metrics and JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Protected => "protected",
            Self::Unprotected => "unprotected",
            Self::Unknown => "unknown",
        }
    }

    /// The meaning of the finding as a sentence.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Protected => "what the kernel has handed to the devices survives a power failure",
            Self::Unprotected => "a power failure loses what was not flushed, or more",
            Self::Unknown => "what a power failure loses cannot be seen from here",
        }
    }
}

impl Assessment {
    fn disks(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().filter(|device| !device.layered)
    }

    /// The cache of all disks together: the worst of them.
    #[must_use]
    pub fn cache(&self) -> Cache {
        let caches: Vec<Cache> = self.disks().map(|disk| disk.cache).collect();
        match caches.as_slice() {
            [] => Cache::Unknown,
            some if some.contains(&Cache::WriteBack) => Cache::WriteBack,
            some if some.contains(&Cache::Unknown) => Cache::Unknown,
            _ => Cache::WriteThrough,
        }
    }

    /// `volatile-cache,no-fua,virtual,unprotected`: the caches, FUA, every finding, the verdict.
    #[must_use]
    pub fn words(&self) -> String {
        let mut words = vec![self.cache().word()];
        if self.disks().next().is_some() {
            let fua = self.disks().all(|disk| disk.fua == Some(true));
            words.push(if fua { "fua" } else { "no-fua" });
        }
        words.extend(self.findings.iter().map(|finding| finding.kind.word()));
        words.extend(self.asserted_word().map(|(asserted, _)| asserted));
        words.push(self.verdict().word());
        let mut said = Vec::new();
        for word in words {
            if !said.contains(&word) {
                said.push(word);
            }
        }
        said.join(",")
    }

    /// The word for it in the log and in the configuration.
    fn asserted_word(&self) -> Option<(&'static str, &'static str)> {
        match self.asserted {
            Protection::None => None,
            Protection::Ups => Some(("asserted-ups", "ups")),
            Protection::Plp => Some(("asserted-plp", "plp")),
        }
    }

    /// File systems and devices, upper ones first: `ext4 on /srv; dm-1, md0, sda, sdb`.
    #[must_use]
    pub fn stack(&self) -> String {
        let systems = self.file_systems.iter();
        let systems: Vec<String> = systems
            .map(|system| format!("{} on {}", system.kind, system.mounted_on))
            .collect();
        let devices: Vec<&str> = self.devices.iter().map(|device| &*device.name).collect();
        match (systems.join(", "), devices.join(", ")) {
            (systems, devices) if devices.is_empty() => systems,
            (systems, devices) => format!("{systems}; {devices}"),
        }
    }

    /// One line for each finding, the heaviest first.
    #[must_use]
    pub fn sentences(&self) -> Vec<String> {
        let mut findings: Vec<_> = self.findings.iter().collect();
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.kind.weight()));
        let mut lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        match (self.asserted_word(), self.verdict()) {
            (None, _) => {}
            (Some((_, word)), Verdict::Protected) => {
                lines.push(format!("protected by the administrator's word: {word}"));
            }
            (Some((_, word)), _) => {
                lines.push(format!(
                    "protection = \"{word}\" cannot hold for what was found here"
                ));
            }
        }
        lines
    }

    /// The findings about the storage under a share, for `holdfast status`.
    #[must_use]
    pub fn status(&self) -> ProtectionStatus {
        let devices = self.devices.iter().map(|device| DeviceStatus {
            name: device.name.clone(),
            kind: device.kind.to_owned(),
            layered: device.layered,
            write_cache: device.cache.word().to_owned(),
            fua: device.fua,
            rotational: device.rotational,
        });
        let findings = self.findings.iter().map(|finding| FindingStatus {
            finding: finding.kind.word().to_owned(),
            subject: finding.subject.clone(),
            says: finding.to_string(),
            breaks_syncs: finding.kind.breaks_syncs(),
        });
        ProtectionStatus {
            verdict: self.verdict().word().to_owned(),
            contradictory: self.is_contradictory(),
            asserted: self.asserted_word().map(|(_, word)| word.to_owned()),
            words: self.words(),
            stack: self.stack(),
            says: self.sentences(),
            file_systems: self.file_systems.clone(),
            devices: devices.collect(),
            findings: findings.collect(),
        }
    }
}

/// The families of all shares.
pub(crate) fn metrics<'a>(
    page: &mut Page,
    shares: impl Iterator<Item = (&'a str, &'a Assessment)> + Clone,
) {
    let help = "Verdict on the devices under the share (protected, unprotected, unknown); 1 for \
                the one that holds.";
    let mut family = page.family("holdfast_share_protection", help);
    for (share, found) in shares.clone() {
        for verdict in [Verdict::Protected, Verdict::Unprotected, Verdict::Unknown] {
            let labels = [("share", share), ("verdict", verdict.word())];
            family.sample("", &labels, u8::from(found.verdict() == verdict));
        }
    }
    let help = "Disks under the share that report a volatile write cache.";
    let mut family = page.family("holdfast_share_volatile_devices", help);
    for (share, found) in shares.clone() {
        let volatile = found.disks().filter(|disk| disk.cache == Cache::WriteBack);
        family.sample("", &[("share", share)], volatile.count());
    }
    let help = "Findings under the share that bear on durability; always 1.";
    let mut family = page.family("holdfast_share_finding", help);
    for (share, found) in shares {
        for finding in &found.findings {
            let what = finding.kind.word();
            let labels = [
                ("share", share),
                ("finding", what),
                ("subject", &*finding.subject),
            ];
            family.sample("", &labels, 1);
        }
    }
}
