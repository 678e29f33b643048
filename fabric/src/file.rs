//! Fabrics in a file, `fabric.toml`.
//!
//! ```toml
//! name = "two racks"               # for people; the shape by default
//! shape = "fat-tree:k=8@100G"      # a one-line form, or [[switch]] and [[link]] instead
//! oversubscription = 4             # the option `over` of the shape
//! latency = "1us"                  # from here on the options of `shape::options`; a key wins over
//! loss = "0%"                      # the option of the same name in the shape
//! mtu = 4096
//! framing = 66
//! buffer = "512KiB"                # of a port; its queues: { port = "512KiB", alpha = 1.0 };
//!                                  # of a switch: { shared = "16MiB", alpha = 1.0 }
//! mark = "100%"                    # of rate x round trip, or "off"
//! trim = "off"                     # or "on": switches cut packets instead of dropping them
//! balance = "ecmp"
//!
//! [rates]                          # with a shape: rates of some links
//! host = "100G"                    # of hosts
//! edge-agg = "400G"                # by the first words of the switches' names, or by tiers,
//! tier1-tier2 = "400G"             # the lower one first
//!
//! [latencies]                      # likewise
//! agg-core = "5us"
//!
//! [[switch]]                       # without a shape
//! name = "leaf 0"
//! tier = 0                         # by default its distance from the hosts
//!
//! [[link]]
//! ends = ["host 0", "leaf 0"]      # hosts are numbered from 0
//! rate = "100G"
//! latency = "1us"                  # the one above by default
//! loss = "0%"                      # the one above by default
//!
//! [[fault]]
//! link = "edge 0.0 - agg 0.1"      # all links between the two, or "host 5": the host's link;
//!                                  # "edge 0.0 -> agg 0.1": only in this direction
//! kind = "failed"                  # not there for the whole run
//! # kind = "degraded", rate = "10G"
//! # kind = "gray", loss = "0.1%"                          loses packets at random
//! # kind = "flap", down_at = ["1ms", "3ms"], up_at = ["2ms"]
//! ```

mod explicit;
mod faults;
mod form;

use gradwire_protocol::job::form::FormKey;
use gradwire_protocol::job::spanned::{self, TomlEntry, TomlError, TomlTable};
use toml::de::DeValue;

use crate::check::FabricError;
use crate::policy::SwitchBuffer;
use crate::settings::{self, LATENCY_ALLOWED, RATE_ALLOWED, SETTINGS, Settings};
use crate::shape::{Shape, ShapeError};
use crate::topology::{Device, Fabric, Link};

/// The reason why a `fabric.toml` is refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FileError {
    /// A line is not TOML, or has a wrong key or value.
    #[error(transparent)]
    Toml(#[from] TomlError),
    /// An unknown shape, or a wrong size or option of it.
    #[error("line {line}: {cause}")]
    Shape {
        /// Line of the text, from 1.
        line: usize,
        /// The error of the shape.
        cause: ShapeError,
    },
    /// The links make no fabric.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

/// The form of a `fabric.toml`, from which editors learn its keys.
pub fn file_form() -> Vec<FormKey> {
    form::keys()
}

impl Fabric {
    /// The fabric of a `fabric.toml`.
    pub fn from_toml(text: &str) -> Result<Self, FileError> {
        let document = spanned::parse(text)?;
        let root = TomlTable::root(text, &document);
        let shape = root.get("shape");
        if shape.is_some() {
            let rule = "write the speed there, as in fat-tree:k=4@100G";
            for key in ["speed", "rate", "bandwidth"] {
                root.refuse(key, "shape", rule)?;
            }
        }
        root.only(&form::names(&form::keys()))?;
        let (mut fabric, settings) = match shape {
            Some(shape) => shaped(&root, &shape)?,
            None => explicit::read(&root)?,
        };
        if let Err(refused) = settings.core_faults(&mut fabric) {
            let entry = root.get(refused.option).or_else(|| root.get("shape"));
            let entry = entry.expect("one of them has the option");
            return Err(entry.refused(&refused.allowed()).into());
        }
        if let Some(name) = root.get("name") {
            fabric.name = name.read("a text in quotes", |text| Some(text.to_owned()))?;
        }
        faults::apply(&root, &mut fabric)?;
        fabric.check()?;
        Ok(fabric)
    }
}

fn shaped(root: &TomlTable<'_>, entry: &TomlEntry<'_>) -> Result<(Fabric, Settings), FileError> {
    for key in ["switch", "link"] {
        root.refuse(key, "shape", "describe the fabric by one of them")?;
    }
    let text = entry.read("a one-line form in quotes", |text| Some(text.to_owned()))?;
    let refused = |line, cause| FileError::Shape { line, cause };
    let mut shape = Shape::read(&text).map_err(|cause| refused(entry.line(), cause))?;
    read_settings(root, &mut shape.settings)?;
    let mut line = entry.line();
    if let Some(over) = root.get("oversubscription") {
        shape.over = over.read("whole numbers from 1", |text| text.parse().ok())?;
        line = over.line();
    }
    let mut fabric = shape.fabric().map_err(|cause| refused(line, cause))?;
    if let Some(rates) = root.table("rates")? {
        let put = |link: &mut Link, rate| link.rate = rate;
        for_groups(&mut fabric, &rates, &(RATE_ALLOWED, settings::rate), put)?;
    }
    if let Some(latencies) = root.table("latencies")? {
        let put = |link: &mut Link, latency| link.latency = latency;
        for_groups(
            &mut fabric,
            &latencies,
            &(LATENCY_ALLOWED, settings::latency),
            put,
        )?;
    }
    Ok((fabric, shape.settings))
}

fn read_settings(root: &TomlTable<'_>, settings: &mut Settings) -> Result<(), TomlError> {
    for setting in &SETTINGS {
        let Some(entry) = root.get(setting.name) else {
            continue;
        };
        if setting.name == "buffer" && matches!(entry.value, DeValue::Table(_)) {
            settings.buffer = buffer_table(&entry)?;
            continue;
        }
        entry.read(setting.allowed, |text| (setting.set)(settings, text))?;
    }
    Ok(())
}

fn buffer_table(entry: &TomlEntry<'_>) -> Result<SwitchBuffer, TomlError> {
    let table = entry.table()?;
    let (key, make): (_, fn(_, _) -> _) = match table.get("port") {
        Some(_) => ("port", settings::divided_buffer),
        None => ("shared", settings::shared_buffer),
    };
    table.only(&[key, "alpha"])?;
    let what = "write shared = \"16MiB\", the memory of a switch, or port = \"512KiB\", of a port";
    let bytes = table.required(key, what)?;
    let alpha = table.required("alpha", "write alpha = 1.0, the dynamic threshold factor")?;
    let factor = alpha.read("0.001 to 1000", settings::factor)?;
    let bytes = bytes.read("\"1KiB\" to \"64GiB\"", settings::memory)?;
    Ok(make(bytes, factor))
}

/// The reader of a kind of values, and the allowed values.
type Notation<T> = (&'static str, fn(&str) -> Option<T>);

/// Puts the value of each key into the links of the group that the key names.
fn for_groups<T: Copy>(
    fabric: &mut Fabric,
    table: &TomlTable<'_>,
    (allowed, read): &Notation<T>,
    put: impl Fn(&mut Link, T),
) -> Result<(), TomlError> {
    let groups: Vec<[String; 2]> = fabric
        .links
        .iter()
        .map(|link| fabric.groups(link))
        .collect();
    let mut known: Vec<&str> = groups.iter().flatten().map(String::as_str).collect();
    known.sort_unstable();
    known.dedup();
    table.only(&known)?;
    for key in &known {
        let Some(entry) = table.get(key) else {
            continue;
        };
        let value = entry.read(allowed, read)?;
        let named = |(_, groups): &(_, &[String; 2])| groups.iter().any(|group| group == key);
        for (link, _) in fabric.links.iter_mut().zip(&groups).filter(named) {
            put(link, value);
        }
    }
    Ok(())
}

impl Fabric {
    /// The names of all links of the same place: `host`, or the first words of the
    /// switches' names (`edge-agg`) and their tiers (`tier0-tier1`), the lower one first.
    fn groups(&self, link: &Link) -> [String; 2] {
        let switch = |end: &Device| match *end {
            Device::Switch(switch) => Some(&self.switches[switch as usize]),
            Device::Host(_) => None,
        };
        let Some(mut ends) = link.ends.iter().map(switch).collect::<Option<Vec<_>>>() else {
            return ["host".to_owned(), "host".to_owned()];
        };
        ends.sort_by_key(|switch| switch.tier);
        let joined = |word: fn(&crate::topology::Switch) -> String| {
            let words: Vec<String> = ends.iter().map(|switch| word(switch)).collect();
            words.join("-")
        };
        let kind = |switch: &crate::topology::Switch| {
            let first = switch.name.split(' ').next();
            first.unwrap_or_default().to_owned()
        };
        [
            joined(kind),
            joined(|switch| format!("tier{}", switch.tier)),
        ]
    }
}
