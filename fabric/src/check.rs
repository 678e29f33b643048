//! Whether packets can get from every host to every other.

use crate::graph::Neighbours;
use crate::settings::{FRAMING_RANGE, MTU_RANGE};
use crate::topology::{Device, Fabric, Link};

/// The reason why a fabric cannot be simulated.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FabricError {
    /// There are no hosts.
    #[error("the fabric has no hosts; it needs at least one")]
    NoHosts,
    /// A host without a link, or with several.
    #[error("host {host} has {}; every host needs exactly one link", listed(.links))]
    HostLinks {
        /// The host.
        host: u32,
        /// Its links by name.
        links: Vec<String>,
    },
    /// Two hosts between which there is no path.
    #[error(
        "host {to} has no route to host {from}: no chain of links leads from {near_to} to \
         {near_from}"
    )]
    NoRoute {
        /// One of them.
        from: u32,
        /// The device that it is linked to.
        near_from: String,
        /// The other.
        to: u32,
        /// The device that the other is linked to.
        near_to: String,
    },
    /// A link that ends nowhere, or where it begins.
    #[error("link {link} leads from {low} to {high}; it must join two devices of the fabric")]
    Ends {
        /// Index of the link.
        link: usize,
        /// One end.
        low: String,
        /// The other.
        high: String,
    },
    /// A link that carries no packets.
    #[error(
        "the link {link} has a rate of zero; give a rate, or declare the link with kind = \
    \"failed\""
    )]
    NoRate {
        /// The link by name.
        link: String,
    },
    /// Packets too small or too large.
    #[error(
        "mtu = {0}: allowed are {least} to {most} bytes",
        least = MTU_RANGE.start(),
        most = MTU_RANGE.end()
    )]
    Mtu(u32),
    /// More framing bytes than any network has.
    #[error("framing = {0}: allowed are 0 to {max} bytes", max = FRAMING_RANGE.end())]
    Framing(u32),
    /// A change of an unknown link, or one out of order.
    #[error("change {0} names a link that the fabric lacks, or comes before the preceding change")]
    Change(usize),
}

fn listed(links: &[String]) -> String {
    match links {
        [] => "no link".to_owned(),
        _ => format!("{} links ({})", links.len(), links.join(", ")),
    }
}

impl Fabric {
    /// Checks that the fabric can be simulated:
    /// - every host has one link, and a path to every other host while all links are up,
    /// - links join devices of the fabric and have a rate,
    /// - sizes are within their ranges.
    ///
    /// Takes time in proportion to the number of links.
    pub fn check(&self) -> Result<(), FabricError> {
        if self.hosts == 0 {
            return Err(FabricError::NoHosts);
        }
        if !MTU_RANGE.contains(&self.mtu) {
            return Err(FabricError::Mtu(self.mtu));
        }
        if !FRAMING_RANGE.contains(&self.framing) {
            return Err(FabricError::Framing(self.framing));
        }
        for (index, link) in self.links.iter().enumerate() {
            self.check_link(index, link)?;
        }
        self.check_changes()?;
        let far_ends = self.host_ends()?;
        self.check_routes(&far_ends)
    }

    fn check_link(&self, index: usize, link: &Link) -> Result<(), FabricError> {
        let known = |end: &Device| match *end {
            Device::Host(host) => host < self.hosts,
            Device::Switch(switch) => (switch as usize) < self.switches.len(),
        };
        let [low, high] = link.ends;
        if low == high || !link.ends.iter().all(known) {
            return Err(FabricError::Ends {
                link: index,
                low: self.device_name(low),
                high: self.device_name(high),
            });
        }
        if link.rate.as_bits_per_second() == 0 {
            return Err(FabricError::NoRate {
                link: self.link_name(index as u32),
            });
        }
        Ok(())
    }

    fn check_changes(&self) -> Result<(), FabricError> {
        let mut before = None;
        for (index, change) in self.changes.iter().enumerate() {
            let known = (change.link as usize) < self.links.len();
            if !known || before.is_some_and(|before| before > change.at) {
                return Err(FabricError::Change(index));
            }
            before = Some(change.at);
        }
        Ok(())
    }

    /// The device that each host is linked to.
    fn host_ends(&self) -> Result<Vec<Device>, FabricError> {
        let mut ends: Vec<Vec<Device>> = vec![Vec::new(); self.hosts as usize];
        for link in &self.links {
            for (near, far) in [(0, 1), (1, 0)] {
                if let Device::Host(host) = link.ends[near] {
                    ends[host as usize].push(link.ends[far]);
                }
            }
        }
        let one = |(host, ends): (u32, Vec<Device>)| match ends[..] {
            [end] => Ok(end),
            _ => Err(FabricError::HostLinks {
                host,
                links: ends.iter().map(|end| self.device_name(*end)).collect(),
            }),
        };
        (0..).zip(ends).map(one).collect()
    }

    fn check_routes(&self, far_ends: &[Device]) -> Result<(), FabricError> {
        let mut reached = vec![false; self.switches.len()];
        if let Device::Switch(first) = far_ends[0] {
            for one in Neighbours::in_fabric(self).sweep(&[first]) {
                reached[one.switch as usize] = true;
            }
        }
        let cut_off = (0_u32..).zip(far_ends).find(|&(host, end)| match *end {
            Device::Switch(switch) => !reached[switch as usize],
            Device::Host(other) => host.max(other) != 1,
        });
        cut_off.map_or(Ok(()), |(to, near_to)| {
            Err(FabricError::NoRoute {
                from: 0,
                near_from: self.device_name(far_ends[0]),
                to,
                near_to: self.device_name(*near_to),
            })
        })
    }
}
