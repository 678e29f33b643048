//! `[[switch]]` and `[[link]]`: a fabric of any graph.

use std::collections::{BTreeMap, BTreeSet};

use gradwire_protocol::job::spanned::{TomlEntry, TomlError, TomlTable};

use super::{form, read_settings};
use crate::graph::Graph;
use crate::settings::{self, HOSTS_MAX, LATENCY_ALLOWED, LOSS_ALLOWED, RATE_ALLOWED, Settings};
use crate::topology::{Device, Fabric, Link, Switch};

pub(super) fn read(root: &TomlTable<'_>) -> Result<(Fabric, Settings), TomlError> {
    let needed = "write shape = \"fat-tree:k=8@100G\", or [[switch]] and [[link]] tables";
    root.required("link", needed)?;
    for key in ["oversubscription", "rates", "latencies"] {
        root.refuse(
            key,
            "link",
            "it belongs to `shape`; each [[link]] has its own values",
        )?;
    }
    let mut settings = Settings::default();
    read_settings(root, &mut settings)?;
    let switches = root.tables("switch")?;
    let mut graph = Graph {
        hosts: 0,
        switches: read_switches(&switches)?,
        links: Vec::new(),
    };
    let names = Names::of(&graph.switches);
    for table in root.tables("link")? {
        let link = read_link(&table, &names, &settings)?;
        for end in link.ends {
            if let Device::Host(host) = end {
                graph.hosts = graph.hosts.max(host + 1);
            }
        }
        graph.links.push(link);
    }
    graph.find_tiers();
    for (switch, table) in graph.switches.iter_mut().zip(&switches) {
        if let Some(tier) = table.get("tier") {
            switch.tier = tier.read("0 to 255", |text| text.parse().ok())?;
        }
    }
    let fabric = settings.fabric("fabric.toml".to_owned(), graph);
    Ok((fabric, settings))
}

fn read_switches(tables: &[TomlTable<'_>]) -> Result<Vec<Switch>, TomlError> {
    let mut switches: Vec<Switch> = Vec::new();
    let mut names = BTreeSet::new();
    for table in tables {
        table.only(&form::names(&form::switch_keys()))?;
        let entry = table.required("name", "write name = \"leaf 0\"")?;
        let allowed = "names of its own, not of hosts, without ` - ` in them";
        let name = entry.read(allowed, |text| {
            let plain = !text.is_empty() && host(text).is_none() && !text.contains(" - ");
            (plain && names.insert(text.to_owned())).then(|| text.to_owned())
        })?;
        switches.push(Switch { name, tier: 0 });
    }
    Ok(switches)
}

fn read_link(table: &TomlTable<'_>, names: &Names, settings: &Settings) -> Result<Link, TomlError> {
    table.only(&form::names(&form::link_keys()))?;
    let ends = table.required("ends", "write ends = [\"host 0\", \"leaf 0\"]")?;
    let [low, high] = &ends.list()[..] else {
        return Err(ends.refused("two names, such as [\"host 0\", \"leaf 0\"]"));
    };
    let rate = table.required("rate", "write rate = \"100G\"")?;
    let given = table.get("latency");
    let given = given.map(|entry| entry.read(LATENCY_ALLOWED, settings::latency));
    let lost = table.get("loss");
    let lost = lost.map(|entry| entry.read(LOSS_ALLOWED, settings::loss));
    Ok(Link {
        ends: [names.device(low)?, names.device(high)?],
        rate: rate.read(RATE_ALLOWED, settings::rate)?,
        latency: given.transpose()?.unwrap_or(settings.latency),
        loss: lost.transpose()?.unwrap_or(settings.loss),
    })
}

/// The number of a host that is written `host 7`.
pub(super) fn host(text: &str) -> Option<u32> {
    let number = text.strip_prefix("host ")?.trim().parse().ok();
    number.filter(|host| u64::from(*host) < HOSTS_MAX)
}

/// Switches by their names.
pub(super) struct Names(BTreeMap<String, u32>);

impl Names {
    pub(super) fn of(switches: &[Switch]) -> Self {
        let names = switches.iter().map(|switch| switch.name.clone());
        Self(names.zip(0..).collect())
    }

    /// The device of this name.
    pub(super) fn find(&self, name: &str) -> Option<Device> {
        let name = name.trim();
        let switch = self.0.get(name).copied().map(Device::Switch);
        switch.or_else(|| host(name).map(Device::Host))
    }

    fn device(&self, entry: &TomlEntry<'_>) -> Result<Device, TomlError> {
        entry.read("`host 0` and so on, and names of a [[switch]]", |name| {
            self.find(name)
        })
    }
}
