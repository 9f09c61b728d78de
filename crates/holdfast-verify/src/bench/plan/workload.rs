//! The workloads of a plan.

use serde::{Deserialize, de::Error};
use smb_load::{Protection, experiment::Workload, limit};

use super::{CLIENTS_MAX, ServerKind, ServerPlan, exactly, name_of};
use crate::bench::shares;

#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "toml::Table")]
pub(super) struct WorkloadPlan {
    /// The name in results; the kind, unless given.
    pub(super) title: String,
    pub(super) workload: Workload,
    settings: Settings,
}

/// How and where it runs, instead of the plan's settings.
#[derive(Debug, Clone, Deserialize)]
struct Settings {
    clients: Option<Vec<usize>>,
    /// The names of the servers that are given it; all that can be, unless given.
    servers: Option<Vec<String>>,
    seconds: Option<f64>,
    #[serde(default)]
    protection: Protection,
}

impl TryFrom<toml::Table> for WorkloadPlan {
    type Error = String;

    fn try_from(mut table: toml::Table) -> Result<Self, String> {
        let name = name_of(&mut table)?;
        let kind = table.remove("kind").ok_or("a workload has no kind")?;
        let mut settings = toml::Table::new();
        for key in ["clients", "servers", "seconds", "protection"] {
            settings.extend(table.remove_entry(key));
        }
        let named = |error: toml::de::Error| format!("workload {kind}: {error}");
        let settings = settings.try_into().map_err(named)?;
        table.insert("workload".to_owned(), kind.clone());
        let workload: Workload = exactly(table)
            .map_err(toml::de::Error::custom)
            .map_err(named)?;
        workload.check()?;
        Ok(Self {
            title: name.unwrap_or_else(|| workload.name().to_owned()),
            workload,
            settings,
        })
    }
}

impl WorkloadPlan {
    pub(super) fn clients<'a>(&'a self, all: &'a [usize]) -> &'a [usize] {
        self.settings.clients.as_deref().unwrap_or(all)
    }

    pub(super) fn seconds(&self, all: f64) -> f64 {
        self.settings.seconds.unwrap_or(all)
    }

    pub(super) fn protection(&self) -> Protection {
        self.settings.protection
    }

    /// Whether a server is given it.
    pub(super) fn runs_on(&self, server: &ServerPlan) -> bool {
        let is_limit = matches!(server.kind, ServerKind::Limit { .. });
        let has_limit = limit::has_limit(&self.workload) && self.protection() == Protection::Plain;
        if is_limit && !has_limit {
            return false;
        }
        let names = self.settings.servers.as_ref();
        names.is_none_or(|names| names.contains(&server.name))
    }

    pub(super) fn check(&self, all: &[usize], servers: &[ServerPlan]) -> Result<(), String> {
        let clients = self.clients(all);
        if clients.is_empty() || clients.iter().any(|n| !(1..=CLIENTS_MAX).contains(n)) {
            return Err(format!("clients are numbers from 1 to {CLIENTS_MAX}"));
        }
        let names = self.settings.servers.iter().flatten();
        let mut unknown = names.filter(|name| servers.iter().all(|of| of.name != **name));
        if let Some(name) = unknown.next() {
            return Err(format!("workload {:?}: no server {name:?}", self.title));
        }
        for server in servers.iter().filter(|server| self.runs_on(server)) {
            shares::check(&self.workload, &server.kind.shares()?)
                .map_err(|why| format!("workload {:?} on {:?}: {why}", self.title, server.name))?;
        }
        Ok(())
    }
}
