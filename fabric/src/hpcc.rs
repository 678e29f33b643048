//! Topology files of HPCC's simulator, which conweave-ns3 and ASTRA-sim's ns-3 backend use too.
//!
//! ```text
//! 5 1 4                            hosts and switches together, switches, links
//! 4                                numbers of the switches
//! 0 4 100Gbps 1000ns 0.000000      two devices, rate, time on the wire, share of packets lost
//! ```
//!
//! Numbers that are not listed as switches are hosts, in ascending order: where switches are
//! numbered last, as in all published files, hosts keep their numbers. A switch is called by its
//! number in the file. Source: `simulation/scratch/third.cc` of
//! alibaba-edu/High-Precision-Congestion-Control.

use std::collections::BTreeMap;

use crate::check::FabricError;
use crate::graph::Graph;
use crate::settings::{
    self, HOSTS_MAX, LATENCY_ALLOWED, LINKS_MAX, LOSS_ALLOWED, RATE_ALLOWED, Settings,
};
use crate::topology::{Device, Fabric, Link, Switch};

/// The reason why a topology file of HPCC is refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HpccError {
    /// The first line.
    #[error(
        "line {line}: `{given}`: the first line is three numbers, `DEVICES SWITCHES LINKS`, with \
         at most {} hosts, fewer switches than devices, and at most {} links",
        HOSTS_MAX,
        LINKS_MAX
    )]
    Header {
        /// Line of the text, from 1.
        line: usize,
        /// The line as written.
        given: String,
    },
    /// A number of a switch that cannot be one.
    #[error(
        "line {line}: switch `{given}`: allowed are {switches} different numbers below {devices}"
    )]
    Switch {
        /// Line of the text, from 1.
        line: usize,
        /// The number as written.
        given: String,
        /// Number of switches in the first line.
        switches: u32,
        /// Number of devices in the first line.
        devices: u32,
    },
    /// Part of a link.
    #[error("line {line}: {part} `{given}`: allowed are {allowed}")]
    Link {
        /// Line of the text, from 1.
        line: usize,
        /// Which part.
        part: &'static str,
        /// The part as written.
        given: String,
        /// The allowed values.
        allowed: String,
    },
    /// Fewer or more links than the first line promises.
    #[error("line {line}: {found} links, where the first line says {promised}; make them equal")]
    Links {
        /// Line of the text, from 1.
        line: usize,
        /// Number of links in the file.
        found: usize,
        /// Number of links that the first line promises.
        promised: usize,
    },
    /// The links make no fabric.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

impl Fabric {
    /// The fabric of a topology file of HPCC.
    pub fn from_hpcc(text: &str) -> Result<Self, HpccError> {
        let rows = (1..).zip(text.lines().map(str::trim));
        let mut rows = rows.filter(|(_, row)| !row.is_empty());
        let (line, first) = rows.next().unwrap_or((1, ""));
        let header = Header::read(first).ok_or_else(|| HpccError::Header {
            line,
            given: first.to_owned(),
        })?;
        let numbers = switch_numbers(&header, &mut rows, line)?;
        let switches = numbers.iter().map(|number| Switch {
            name: format!("switch {number}"),
            tier: 0,
        });
        let mut graph = Graph {
            hosts: header.devices - header.switches,
            switches: switches.collect(),
            links: Vec::new(),
        };
        let devices = devices(&header, &numbers);
        let mut end = line;
        for (line, row) in rows {
            end = line;
            if graph.links.len() == header.links {
                return Err(header.links_refused(line, header.links + 1));
            }
            graph.links.push(read_link(line, row, &devices)?);
        }
        if graph.links.len() != header.links {
            return Err(header.links_refused(end, graph.links.len()));
        }
        graph.find_tiers();
        let name = format!("HPCC topology of {} hosts", graph.hosts);
        let fabric = Settings::default().fabric(name, graph);
        fabric.check()?;
        Ok(fabric)
    }
}

struct Header {
    devices: u32,
    switches: u32,
    links: usize,
}

impl Header {
    fn read(row: &str) -> Option<Self> {
        let numbers = row.split_whitespace().map(|text| text.parse().ok());
        let numbers: Option<Vec<u32>> = numbers.collect();
        let [devices, switches, links] = numbers?[..] else {
            return None;
        };
        let hosts = devices.checked_sub(switches).filter(|hosts| *hosts > 0)?;
        let fits = [hosts, switches].map(|count| u64::from(count) <= HOSTS_MAX);
        let fits = fits == [true, true] && u64::from(links) <= LINKS_MAX;
        fits.then_some(Self {
            devices,
            switches,
            links: links as usize,
        })
    }

    fn links_refused(&self, line: usize, found: usize) -> HpccError {
        HpccError::Links {
            line,
            found,
            promised: self.links,
        }
    }
}

/// Reads the numbers of all switches that the first line promises, from one line or more.
fn switch_numbers<'t>(
    header: &Header,
    rows: &mut impl Iterator<Item = (usize, &'t str)>,
    first: usize,
) -> Result<Vec<u32>, HpccError> {
    let mut numbers: Vec<u32> = Vec::new();
    let mut seen = vec![false; header.devices as usize];
    let refused = |line, given: &str| HpccError::Switch {
        line,
        given: given.to_owned(),
        switches: header.switches,
        devices: header.devices,
    };
    while numbers.len() < header.switches as usize {
        let (line, row) = rows.next().ok_or_else(|| refused(first, ""))?;
        for given in row.split_whitespace() {
            let number: Option<u32> = given.parse().ok();
            let fresh = number.filter(|number| seen.get(*number as usize) == Some(&false));
            let fresh = fresh.filter(|_| numbers.len() < header.switches as usize);
            let number = fresh.ok_or_else(|| refused(line, given))?;
            seen[number as usize] = true;
            numbers.push(number);
        }
    }
    Ok(numbers)
}

/// The device of each number in the file.
fn devices(header: &Header, switches: &[u32]) -> Vec<Device> {
    let switches: BTreeMap<u32, u32> = switches.iter().copied().zip(0..).collect();
    let mut hosts = 0..;
    let device = |number| match switches.get(&number) {
        Some(&switch) => Device::Switch(switch),
        None => Device::Host(hosts.next().expect("numbers do not end")),
    };
    (0..header.devices).map(device).collect()
}

fn read_link(line: usize, row: &str, devices: &[Device]) -> Result<Link, HpccError> {
    let refused = |part, given: &str, allowed: &str| HpccError::Link {
        line,
        part,
        given: given.to_owned(),
        allowed: allowed.to_owned(),
    };
    let parts: Vec<&str> = row.split_whitespace().collect();
    let [a, b, rate, latency, loss] = parts[..] else {
        return Err(refused(
            "link",
            row,
            "`DEVICE DEVICE RATE DELAY ERROR_RATE`",
        ));
    };
    let device = |given: &str| {
        let number = given.parse().ok();
        let device = number.and_then(|number: usize| devices.get(number));
        device.copied().ok_or_else(|| {
            let allowed = format!("the numbers 0 to {}", devices.len() - 1);
            refused("device", given, &allowed)
        })
    };
    Ok(Link {
        ends: [device(a)?, device(b)?],
        rate: settings::rate(rate).ok_or_else(|| refused("rate", rate, RATE_ALLOWED))?,
        latency: settings::latency(latency)
            .ok_or_else(|| refused("delay", latency, LATENCY_ALLOWED))?,
        loss: settings::loss(loss).ok_or_else(|| refused("error rate", loss, LOSS_ALLOWED))?,
    })
}
