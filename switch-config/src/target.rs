//! The platforms that a plan can be rendered for, by name and version.

use std::fmt;

/// A kind of switch software.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Platform {
    /// SONiC: `CONFIG_DB` in JSON.
    Sonic,
    /// NVIDIA Cumulus Linux: NVUE in YAML.
    Nvue,
    /// Arista EOS: its command line.
    Eos,
    /// Juniper Junos: `set` commands.
    Junos,
    /// Cisco NX-OS: its command line.
    Nxos,
    /// The vendor-neutral models of OpenConfig: JSON.
    OpenConfig,
    /// Linux: `tc` commands.
    Linux,
}

/// Every platform, its name, and its versions; the last one is taken when none is given.
const PLATFORMS: [(Platform, &str, &[&str]); 7] = [
    (Platform::Sonic, "sonic", &["202608"]),
    (Platform::Nvue, "nvue", &["5.11", "5.14", "5.18"]),
    (Platform::Eos, "eos", &["sand", "trident"]),
    (Platform::Junos, "junos", &["qfx10000", "qfx5100"]),
    (Platform::Nxos, "nxos", &["10.x"]),
    (Platform::OpenConfig, "openconfig", &["2026-08"]),
    (Platform::Linux, "linux", &["host", "bpf", "lab", "switch"]),
];

/// A platform of a version.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct SwitchTarget {
    /// The platform.
    pub platform: Platform,
    /// Its version, one of those known.
    pub version: &'static str,
}

/// Why there is no such target.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TargetError {
    /// No such platform.
    #[error("unknown platform `{given}`; known ones are {known}")]
    Platform {
        /// The given name.
        given: String,
        /// All names.
        known: String,
    },
    /// No such version of it.
    #[error("unknown version `{given}` of {platform}; known ones are {known}")]
    Version {
        /// The platform.
        platform: &'static str,
        /// The given name.
        given: String,
        /// All its versions.
        known: String,
    },
}

impl SwitchTarget {
    /// Reads `sonic` or `nvue:5.14`; without a version the newest one is taken.
    ///
    /// # Errors
    /// [`TargetError`] names the given text and the known names.
    pub fn read(text: &str) -> Result<Self, TargetError> {
        let (name, version) = match text.split_once(':') {
            Some((name, version)) => (name, Some(version)),
            None => (text, None),
        };
        let found = PLATFORMS.iter().find(|(_, known, _)| *known == name);
        let Some((platform, name, versions)) = found else {
            let known: Vec<&str> = PLATFORMS.iter().map(|(_, name, _)| *name).collect();
            return Err(TargetError::Platform {
                given: text.to_owned(),
                known: known.join(", "),
            });
        };
        let last = versions.last().copied();
        let chosen = version.map_or(last, |given| {
            versions.iter().copied().find(|known| *known == given)
        });
        let version = chosen.ok_or_else(|| TargetError::Version {
            platform: name,
            given: version.unwrap_or_default().to_owned(),
            known: versions.join(", "),
        })?;
        Ok(Self {
            platform: *platform,
            version,
        })
    }

    /// Every version of every platform.
    pub fn all() -> impl Iterator<Item = Self> {
        PLATFORMS.iter().flat_map(|(platform, _, versions)| {
            versions.iter().map(|version| Self {
                platform: *platform,
                version,
            })
        })
    }
}

impl Platform {
    /// The name by which it is asked for.
    pub fn name(self) -> &'static str {
        let row = PLATFORMS.iter().find(|(platform, ..)| *platform == self);
        row.map_or("", |(_, name, _)| name)
    }
}

impl fmt::Display for SwitchTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.platform.name(), self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_reads_back_and_the_newest_version_is_taken_without_one() {
        for target in SwitchTarget::all() {
            assert_eq!(SwitchTarget::read(&target.to_string()), Ok(target));
        }
        let newest = SwitchTarget::read("nvue").map(|target| target.version);
        assert_eq!(newest, Ok("5.18"));
    }

    #[test]
    fn an_unknown_platform_or_version_is_named_beside_the_known_ones() {
        let error = |text| SwitchTarget::read(text).map_err(|error| error.to_string());
        assert_eq!(
            error("nvue:4.4"),
            Err("unknown version `4.4` of nvue; known ones are 5.11, 5.14, 5.18".to_owned())
        );
        let message = error("ios").expect_err("no such platform");
        assert!(message.starts_with("unknown platform `ios`; known ones are sonic, nvue"));
    }
}
