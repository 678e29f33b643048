//! Settings of all switches and links of a fabric, their defaults, and how they are written.
//!
//! The same settings are options of the one-line forms ([`super::shape`]) and keys of
//! `fabric.toml` ([`mod@super::file`]).

use crate::policy::Balance;
use gradwire_protocol::job::form::{FormKey, KeyNeed, ValueForm};
use gradwire_protocol::job::notation;
use gradwire_protocol::units::{ByteCount, Instant, Rate, Share, Span};

use crate::graph::Graph;
use crate::policy::SwitchBuffer;
use crate::topology::{
    Device, FRAMING, Fabric, HostSpells, LinkChange, LinkState, LinkWay, MTU, PORT_BUFFER,
    SlowSpells, Trimming,
};

/// Allowed sizes of a fabric's packets, in bytes.
pub(crate) const MTU_RANGE: std::ops::RangeInclusive<u32> = 256..=65_000;
/// Allowed sizes of the framing around a packet, in bytes.
pub(crate) const FRAMING_RANGE: std::ops::RangeInclusive<u32> = 0..=1_000;
/// Maximum number of hosts of a fabric: as many as there are ranks.
pub(crate) const HOSTS_MAX: u64 = 65_536;
/// Maximum number of links of a fabric.
pub(crate) const LINKS_MAX: u64 = 1 << 22;
/// The allowed forms of a rate.
pub const RATE_ALLOWED: &str = "1M to 10T bits per second, such as 100G, 2.5Gbps or 400Gb/s";
/// The allowed forms of a latency.
pub(crate) const LATENCY_ALLOWED: &str = "0us to 1s, with a unit of s, ms, us, ns or ps";
/// The allowed forms of a share of lost packets.
pub(crate) const LOSS_ALLOWED: &str = "0 to 1, or 0% to 100%, in steps of 0.000001";
/// The allowed forms of slow spells.
const SPELLS_ALLOWED: &str = "LENGTH/APART/LEFT, two times from 1us to 10s and a share above 0, \
                              such as 300us/20ms/25%";

/// The form of slow spells.
const SPELLS_PATTERN: &str = r"^[^/]+/[^/]+/[^/]+$";
/// The form of a number of links and their fault.
const COUNTED_PATTERN: &str = "^[0-9]+@.+$";
/// The form of a rate.
const RATE_PATTERN: &str = r"^\s*[0-9.]+\s*[KkMGT](bps|b/s)?\s*$";

/// The settings of a fabric.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Time on the wire of every link.
    pub(crate) latency: Span,
    /// Share of packets that every link loses, in each direction.
    pub(crate) loss: Share,
    mtu: u32,
    framing: u32,
    pub(crate) buffer: SwitchBuffer,
    balance: Option<Balance>,
    marks_above: Option<Share>,
    trimming: Trimming,
    spells: HostSpells,
    core: CoreFaults,
}

/// Faults of the first links to the highest tier of switches.
#[derive(Clone, Copy, Debug, Default)]
struct CoreFaults {
    slow: Option<(u32, Rate)>,
    gray: Option<(u32, Share)>,
    failed: Option<(u32, Instant)>,
}

/// More faulty links to the highest tier than there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TooManyFaults {
    /// The option.
    pub(crate) option: &'static str,
    /// Links that the option asks for.
    pub(crate) given: u32,
    /// Links that there are.
    pub(crate) links: u32,
}

impl TooManyFaults {
    /// The allowed values.
    pub(crate) fn allowed(&self) -> String {
        match self.links {
            0 => "fabrics with links between switches".to_owned(),
            links => format!("1 to {links} links: as many lead to the highest tier of switches"),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            latency: Span::from_micros(1),
            loss: Share::NONE,
            mtu: MTU,
            framing: FRAMING,
            buffer: SwitchBuffer::PerPort(PORT_BUFFER),
            balance: None,
            marks_above: Some(Share::ALL),
            trimming: Trimming::Off,
            spells: HostSpells::default(),
            core: CoreFaults::default(),
        }
    }
}

impl Settings {
    /// A fabric of these settings.
    pub(crate) fn fabric(&self, name: String, graph: Graph) -> Fabric {
        Fabric {
            name,
            hosts: graph.hosts,
            switches: graph.switches,
            links: graph.links,
            changes: Vec::new(),
            one_way: Vec::new(),
            spells: self.spells,
            buffer: self.buffer,
            mtu: self.mtu,
            framing: self.framing,
            balance: self.balance,
            marks_above: self.marks_above,
            trimming: self.trimming,
        }
    }

    /// Makes the first links to the highest tier of a fabric slow, gray or dead.
    pub(crate) fn core_faults(&self, fabric: &mut Fabric) -> Result<(), TooManyFaults> {
        let tier = |device: &Device| match device {
            Device::Switch(switch) => Some(fabric.switches[*switch as usize].tier),
            Device::Host(_) => None,
        };
        let top = fabric.switches.iter().map(|switch| switch.tier).max();
        let links = (0..).zip(&fabric.links);
        let links = links.filter(|(_, link)| {
            let tiers = link.ends.each_ref().map(tier);
            tiers.contains(&top) && !tiers.contains(&None)
        });
        let links: Vec<u32> = links.map(|(number, _)| number).collect();
        let first = |option, count: u32| {
            let refused = TooManyFaults {
                option,
                given: count,
                links: links.len() as u32,
            };
            links.get(..count as usize).ok_or(refused)
        };
        if let Some((count, rate)) = self.core.slow {
            for &link in first("core-slow", count)? {
                fabric.links[link as usize].rate = rate;
            }
        }
        if let Some((count, loss)) = self.core.gray {
            for &link in first("core-gray", count)? {
                fabric.links[link as usize].loss = loss;
            }
        }
        if let Some((count, at)) = self.core.failed {
            let changes = first("core-fail", count)?.iter().map(|&link| LinkChange {
                at,
                link,
                way: LinkWay::Both,
                state: LinkState::Down,
            });
            fabric.changes.extend(changes);
        }
        Ok(())
    }
}

/// Reads `8@10G`: how many links, and the rate, loss or time that applies to them.
fn counted<T>(text: &str, read: impl Fn(&str) -> Option<T>) -> Option<(u32, T)> {
    let (count, rest) = text.split_once('@')?;
    let count = count.trim().parse().ok().filter(|count| *count > 0)?;
    Some((count, read(rest)?))
}

/// One setting: its purpose, the allowed values, and the field that takes the value.
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) allowed: &'static str,
    /// The form of the value in a file.
    pub(crate) form: fn() -> ValueForm,
    /// Stores a value; returns whether it is allowed.
    pub(crate) set: fn(&mut Settings, &str) -> Option<()>,
}

/// All settings.
pub(crate) const SETTINGS: [Setting; 13] = [
    Setting {
        name: "latency",
        doc: "Time on the wire of every link; 1us by default.",
        allowed: LATENCY_ALLOWED,
        form: ValueForm::span,
        set: |settings, text| {
            settings.latency = latency(text)?;
            Some(())
        },
    },
    Setting {
        name: "loss",
        doc: "Share of packets that every link loses at random, in each direction; 0 by default.",
        allowed: LOSS_ALLOWED,
        form: ValueForm::share,
        set: |settings, text| {
            settings.loss = loss(text)?;
            Some(())
        },
    },
    Setting {
        name: "mtu",
        doc: "Largest packet of a transport in bytes, its header included; 4096 by default.",
        allowed: "256 to 65000 bytes",
        form: || ValueForm::Whole(u64::from(*MTU_RANGE.start())..=u64::from(*MTU_RANGE.end())),
        set: |settings, text| {
            settings.mtu = text.parse().ok().filter(|mtu| MTU_RANGE.contains(mtu))?;
            Some(())
        },
    },
    Setting {
        name: "framing",
        doc: "Bytes that a packet takes on a wire beyond itself: Ethernet, IPv4 and UDP; 66 by \
              default.",
        allowed: "0 to 1000 bytes",
        form: || {
            ValueForm::Whole(u64::from(*FRAMING_RANGE.start())..=u64::from(*FRAMING_RANGE.end()))
        },
        set: |settings, text| {
            let bytes = text.parse().ok();
            settings.framing = bytes.filter(|bytes| FRAMING_RANGE.contains(bytes))?;
            Some(())
        },
    },
    Setting {
        name: "buffer",
        doc: "Packet memory: of every port, first come, first served, or with a dynamic threshold \
              factor for each data queue (of gradwire's switches: references keep the first); or \
              shared by the ports of a switch, with such a factor; 512KiB of every port, first \
              come, first served, by default.",
        allowed: "1KiB to 64GiB of every port, such as 512KiB, or with a factor from 0.001 to \
                  1000, such as 512KiB/port*1.0, or shared, such as 16MiB*1.0",
        form: buffer_form,
        set: |settings, text| {
            settings.buffer = buffer(text)?;
            Some(())
        },
    },
    Setting {
        name: "mark",
        doc: "Queue depth, as a share of rate x round trip, above which switches mark protected \
              packets and drop droppable ones; 100% by default, off for plain tail drop.",
        allowed: "off, 0 to 1, or 0% to 100%",
        form: || ValueForm::share().or_word("off"),
        set: |settings, text| {
            settings.marks_above = match text {
                "off" => None,
                share => Some(notation::share(share)?),
            };
            Some(())
        },
    },
    Setting {
        name: "trim",
        doc: "Whether switches cut data packets to their headers, which go on in the highest \
              queue, where a queue is full or longer than 1.5 round trips at its rate \
              (gradwire's switches; ndp, eqds, nscc and rccc have their own), unless the command \
              line says; off by default.",
        allowed: "on, off",
        form: || ValueForm::Words(vec!["on", "off"]),
        set: |settings, text| {
            settings.trimming = trimming(text)?;
            Some(())
        },
    },
    Setting {
        name: "balance",
        doc: "How switches choose among equally short paths, unless the command line says.",
        allowed: "ecmp, random, adaptive",
        form: || ValueForm::Words(vec!["ecmp", "random", "adaptive"]),
        set: |settings, text| {
            settings.balance = Some(balance(text)?);
            Some(())
        },
    },
    Setting {
        name: "slow-send",
        doc: "Spells in which a host sends slowly, drawn for each host: their mean length, the \
              mean time between them, and the share of the rate that is left; none by default.",
        allowed: SPELLS_ALLOWED,
        form: || ValueForm::Text(SPELLS_PATTERN),
        set: |settings, text| {
            settings.spells.send = Some(spells(text)?);
            Some(())
        },
    },
    Setting {
        name: "slow-receive",
        doc: "The same for what a host receives.",
        allowed: SPELLS_ALLOWED,
        form: || ValueForm::Text(SPELLS_PATTERN),
        set: |settings, text| {
            settings.spells.receive = Some(spells(text)?);
            Some(())
        },
    },
    Setting {
        name: "core-slow",
        doc: "Of the links to the highest tier of switches, how many are slow, the first ones, and \
              their rate; none by default.",
        allowed: "COUNT@RATE, such as 8@10G",
        form: || ValueForm::Text(COUNTED_PATTERN),
        set: |settings, text| {
            settings.core.slow = Some(counted(text, rate)?);
            Some(())
        },
    },
    Setting {
        name: "core-gray",
        doc: "How many of them lose packets, in each direction, and what share; none by default.",
        allowed: "COUNT@SHARE, such as 1@0.1%",
        form: || ValueForm::Text(COUNTED_PATTERN),
        set: |settings, text| {
            settings.core.gray = Some(counted(text, loss)?);
            Some(())
        },
    },
    Setting {
        name: "core-fail",
        doc: "How many of them fail, and when, for good; none by default.",
        allowed: "COUNT@TIME, such as 1@100us",
        form: || ValueForm::Text(COUNTED_PATTERN),
        set: |settings, text| {
            let at = |text: &str| Some(Instant::START + notation::span(text)?);
            settings.core.failed = Some(counted(text, at)?);
            Some(())
        },
    },
];

/// The form of a rate.
pub(crate) fn rate_form() -> ValueForm {
    ValueForm::Text(RATE_PATTERN)
}

/// The form of a buffer: one text, or a table of memory and threshold factor.
fn buffer_form() -> ValueForm {
    let sized = |name, meaning: &str| FormKey {
        name,
        meaning: format!("{meaning} \"1KiB\" to \"64GiB\"."),
        default: None,
        need: KeyNeed::Optional,
        form: ValueForm::size(),
    };
    let factor = FormKey {
        name: "alpha",
        meaning: "The dynamic threshold factor, 0.001 to 1000.".to_owned(),
        default: None,
        need: KeyNeed::Required,
        form: ValueForm::AnyOf(vec![
            ValueForm::Decimal(0.001..=1000.0),
            ValueForm::Text(""),
        ]),
    };
    let port = sized("port", "The memory of a port, divided among its queues.");
    let shared = sized("shared", "The memory of a switch, shared by its ports.");
    let table = ValueForm::Table(vec![port, shared, factor]);
    let text = ValueForm::Text(r"^\s*[0-9.]+\s*[A-Za-z]*\s*(/port)?\s*(\*.*)?$");
    ValueForm::AnyOf(vec![text, ValueForm::Whole(0..=u64::MAX), table])
}

/// Reads a rate in bits per second with its unit: `100G`, `2.5Gbps`, `400Gb/s`. Units are powers
/// of 1,000.
pub fn rate(text: &str) -> Option<Rate> {
    let text = text.trim();
    let end = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = (text[..end].trim_end(), &text[end..]);
    let short = unit.strip_suffix("bps");
    let short = short.or_else(|| unit.strip_suffix("b/s"));
    let unit: f64 = match short.unwrap_or(unit) {
        "K" | "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        _ => return None,
    };
    let plain = number
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let bits = number.parse::<f64>().ok().filter(|_| plain)? * unit;
    (1e6..=1e13)
        .contains(&bits)
        .then(|| Rate::from_bits_per_second(bits.round() as u64))
}

/// Reads the latency of a link: a time of at most a second.
pub(crate) fn latency(text: &str) -> Option<Span> {
    notation::span(text).filter(|span| *span <= Span::from_millis(1_000))
}

/// Reads the share of packets that a link loses; refuses shares so small that they would round to
/// zero.
pub(crate) fn loss(text: &str) -> Option<Share> {
    let share = notation::share(text)?;
    let nothing = text
        .bytes()
        .all(|byte| matches!(byte, b'0' | b'.' | b'%' | b' '));
    (nothing || !share.is_none()).then_some(share)
}

/// Reads slow spells: `300us/20ms/25%`.
fn spells(text: &str) -> Option<SlowSpells> {
    let mut parts = text.split('/');
    let range = Span::from_micros(1)..=Span::from_millis(10_000);
    let mut time = || notation::span(parts.next()?).filter(|span| range.contains(span));
    let (length, apart) = (time()?, time()?);
    let left = notation::share(parts.next()?).filter(|left| !left.is_none())?;
    parts.next().is_none().then_some(SlowSpells {
        length,
        apart,
        left,
    })
}

/// Reads `512KiB`, memory of a port, `512KiB/port*1.0`, the same with the threshold factor of its
/// queues, or `16MiB*1.0`, memory of a switch and its factor.
fn buffer(text: &str) -> Option<SwitchBuffer> {
    let Some((bytes, alpha)) = text.split_once('*') else {
        return Some(SwitchBuffer::PerPort(memory(text)?));
    };
    let alpha = factor(alpha)?;
    Some(match bytes.trim_end().strip_suffix("/port") {
        Some(bytes) => divided_buffer(memory(bytes)?, alpha),
        None => shared_buffer(memory(bytes)?, alpha),
    })
}

/// A buffer of a port whose queues have thresholds.
pub(crate) fn divided_buffer(bytes: ByteCount, alpha: f64) -> SwitchBuffer {
    SwitchBuffer::Divided { bytes, alpha }
}

/// A buffer that the ports of a switch share.
pub(crate) fn shared_buffer(bytes: ByteCount, alpha: f64) -> SwitchBuffer {
    SwitchBuffer::Shared { bytes, alpha }
}

/// Reads a dynamic threshold factor.
pub(crate) fn factor(text: &str) -> Option<f64> {
    let factor = text.trim().parse().ok()?;
    (0.001..=1000.0).contains(&factor).then_some(factor)
}

/// Reads how much memory a port or a switch has.
pub(crate) fn memory(text: &str) -> Option<ByteCount> {
    let range = ByteCount::kib(1)..=ByteCount::mib(64 << 10);
    notation::size(text).filter(|bytes| range.contains(bytes))
}

/// Reads whether switches trim: `on`, `off`.
pub fn trimming(text: &str) -> Option<Trimming> {
    match text {
        "on" => Some(Trimming::On),
        "off" => Some(Trimming::Off),
        _ => None,
    }
}

/// Reads how a switch balances: `ecmp`, `random`, `adaptive`.
pub fn balance(text: &str) -> Option<Balance> {
    match text {
        "ecmp" => Some(Balance::Ecmp),
        "random" => Some(Balance::Random),
        "adaptive" => Some(Balance::Adaptive),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_powers_of_1000_and_read_back() {
        for text in ["100G", "100Gbps", "100 Gb/s", "0.1T", "100000M"] {
            assert_eq!(rate(text), Some(Rate::from_gbps(100)), "{text}");
        }
        assert_eq!(
            rate("2.5G"),
            Some(Rate::from_bits_per_second(2_500_000_000))
        );
        assert_eq!(
            Rate::from_bits_per_second(2_500_000_000).to_string(),
            "2500M"
        );
        assert_eq!(
            rate(&Rate::from_gbps(400).to_string()),
            Some(Rate::from_gbps(400))
        );
        for text in [
            "",
            "100",
            "G",
            "0G",
            "-1G",
            "1e3G",
            "100GB",
            "infG",
            "11T",
            "100 G b/s",
        ] {
            assert_eq!(rate(text), None, "{text}");
        }
    }

    #[test]
    fn a_shared_buffer_is_written_with_its_factor() {
        let shared = SwitchBuffer::Shared {
            bytes: ByteCount::mib(16),
            alpha: 0.5,
        };
        assert_eq!(buffer("16MiB*0.5"), Some(shared));
        assert_eq!(
            buffer("512KiB"),
            Some(SwitchBuffer::PerPort(ByteCount::kib(512)))
        );
        for text in ["0", "16MiB*", "16MiB*0", "16MiB*nan", "*1.0", "16MiB*1*1"] {
            assert_eq!(buffer(text), None, "{text}");
        }
    }

    #[test]
    fn slow_spells_are_two_times_and_a_share() {
        let read = SlowSpells {
            length: Span::from_micros(300),
            apart: Span::from_millis(20),
            left: Share::new(0.25).expect("a share"),
        };
        assert_eq!(spells("300us/20ms/25%"), Some(read));
        for text in [
            "",
            "300us",
            "300us/20ms",
            "300us/20ms/0%",
            "0us/20ms/25%",
            "1us/1us/1/1",
        ] {
            assert_eq!(spells(text), None, "{text}");
        }
    }
}
