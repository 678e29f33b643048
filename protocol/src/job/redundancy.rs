//! The notation of a code over parameter servers: `"mbr:10,5,9"`.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use strum::{EnumString, IntoStaticStr, VariantNames};

/// The largest number of servers that a code covers.
pub const SERVERS_MAX: u8 = 32;

/// The construction of a code.
#[derive(Clone, Copy, Debug, Eq, PartialEq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum RedundancyFamily {
    /// Least bytes for a rebuilt server, at more storage.
    Mbr,
    /// Least bytes for a rebuilt server at the storage of Reed-Solomon.
    Msr,
    /// Reed-Solomon: least storage, and a rebuilt server needs as many bytes as all state.
    Rs,
}

/// A code over `servers`, of which any `needed` hold everything; `rebuilders` rebuild a lost one.
/// Its numbers agree with each other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RedundancyTerms {
    /// The construction.
    pub family: RedundancyFamily,
    servers: u8,
    needed: u8,
    rebuilders: u8,
}

impl RedundancyTerms {
    /// The terms, unless they contradict each other: 1 <= k <= d < n <= [`SERVERS_MAX`]; MSR needs
    /// d >= 2k - 2, and with Reed-Solomon d is k.
    pub fn new(family: RedundancyFamily, (n, k, d): (u8, u8, u8)) -> Option<Self> {
        let is_ordered = 1 <= k && k <= d && d < n && n <= SERVERS_MAX;
        let suits_family = match family {
            RedundancyFamily::Mbr => true,
            RedundancyFamily::Msr => d + 2 >= 2 * k,
            RedundancyFamily::Rs => d == k,
        };
        (is_ordered && suits_family).then_some(Self {
            family,
            servers: n,
            needed: k,
            rebuilders: d,
        })
    }

    /// n: all servers.
    pub fn servers(&self) -> usize {
        usize::from(self.servers)
    }

    /// k: any that many servers hold everything.
    pub fn needed(&self) -> usize {
        usize::from(self.needed)
    }

    /// d: that many servers rebuild a lost one.
    pub fn rebuilders(&self) -> usize {
        usize::from(self.rebuilders)
    }
}

impl FromStr for RedundancyTerms {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (family, numbers) = text.split_once(':').ok_or(())?;
        let family: RedundancyFamily = family.trim().parse().map_err(|_| ())?;
        let numbers: Result<Vec<u8>, _> = numbers.split(',').map(|n| n.trim().parse()).collect();
        let numbers = match (family, numbers.map_err(|_| ())?.as_slice()) {
            (RedundancyFamily::Rs, &[n, k]) => (n, k, k),
            (RedundancyFamily::Mbr | RedundancyFamily::Msr, &[n, k, d]) => (n, k, d),
            _ => return Err(()),
        };
        Self::new(family, numbers).ok_or(())
    }
}

impl Display for RedundancyTerms {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (
            name,
            Self {
                servers, needed, ..
            },
        ) = (<&str>::from(self.family), self);
        match self.family {
            RedundancyFamily::Rs => write!(f, "{name}:{servers},{needed}"),
            _ => write!(f, "{name}:{servers},{needed},{}", self.rebuilders),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_read_as_they_are_shown() {
        for text in [
            "mbr:10,5,9",
            "msr:10,5,8",
            "rs:10,5",
            "mbr:2,1,1",
            "msr:32,2,31",
        ] {
            let terms: RedundancyTerms = text.parse().expect(text);
            assert_eq!(terms.to_string(), text);
        }
    }

    #[test]
    fn terms_that_contradict_each_other_are_refused() {
        for text in [
            "mbr:10,5",
            "rs:10,5,9",
            "mbr:5,5,9",
            "mbr:10,6,5",
            "msr:10,6,9",
            "mbr:33,5,9",
            "rs:4,0",
            "mbr:4,2,4",
            "mbr",
            "xor:4,2,3",
            "mbr:4,2,300",
            "mbr:4,,3",
        ] {
            assert_eq!(text.parse::<RedundancyTerms>(), Err(()), "{text}");
        }
    }
}
