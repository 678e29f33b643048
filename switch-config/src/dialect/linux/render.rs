//! A plan as a shell script of `tc` commands. Loading it twice is loading it once.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::form::{BANDS, LinuxForm};
use super::object::{ObjectFile, STATE_PATH};
use crate::plan::{NoteKind, Plan, PlanQueue, Purpose, SwitchPort, ThresholdProfile};
use gradwire_protocol::units::Rate;

/// Settings that make the kernel hash UDP ports over equal paths, in IPv4 and IPv6.
pub(super) const HASHING: [&str; 2] = [
    "/proc/sys/net/ipv4/fib_multipath_hash_policy",
    "/proc/sys/net/ipv6/fib_multipath_hash_policy",
];
/// The largest `bandwidth` of red: tc keeps bytes per second in 32 bits.
const BANDWIDTH_MOST_BPS: u64 = 8 * u32::MAX as u64;
/// Packets that a sending host's queue keeps.
const HOST_PACKETS: u32 = 10_000;
/// The least burst of a class in bytes: two packets of 1,500, and some.
const BURST_LEAST: u64 = 4096;
/// The rate that each class of HTB always gets, in bits per second: HTB has no class without one.
pub(super) const ASSURED_BPS: u64 = 8000;

/// The whole script.
pub(super) fn script(plan: &Plan) -> String {
    let form = LinuxForm::of(plan);
    let mut text = header(plan);
    let is_host = matches!(form, LinuxForm::Host | LinuxForm::SharedHost);
    if !is_host && plan.balance_to_set().is_some() {
        text.push_str("\n# Equal paths are chosen by addresses and UDP ports.\n");
        for path in HASHING {
            let _ = writeln!(text, "[ ! -e {path} ] || echo 1 >{path}");
        }
    }
    let ports: Vec<&SwitchPort> = plan.site.ports.iter().collect();
    text.push_str(&objects(plan, &ports));
    for port in ports {
        text.push_str(&self::port(plan, port));
    }
    text
}

/// The commands for one port. They first remove the discipline that it has.
pub(super) fn port(plan: &Plan, port: &SwitchPort) -> String {
    let name = quoted(&port.name);
    let mut text = format!("\n# {}, {}\n", one_line(&port.name), port.rate);
    let _ = writeln!(text, "tc qdisc del dev {name} root 2>/dev/null || true");
    for line in lines(plan, port) {
        let _ = writeln!(text, "{line}");
    }
    text
}

fn header(plan: &Plan) -> String {
    let mut text = format!(
        "#!/bin/sh\n# gradwire, {}: {}\n",
        plan.target,
        one_line(&plan.site.origin)
    );
    text.push_str("# Each class is served before the next one.\n");
    for queue in &plan.queues {
        let _ = writeln!(text, "#   queue {}: {}", queue.number, described(queue));
    }
    let formulas = plan.notes.iter();
    for note in formulas.filter(|note| note.kind == NoteKind::Formula) {
        let _ = writeln!(text, "# {}", one_line(&note.text));
    }
    text.push_str("# To go back: tc qdisc del dev PORT root\nset -eu\n");
    text
}

fn described(queue: &PlanQueue) -> String {
    let dscps = queue.dscps.iter().chain(&queue.droppable);
    let dscps: Vec<String> = dscps.map(ToString::to_string).collect();
    format!("{}, DSCP {}", queue.name(), dscps.join(" "))
}

/// Mounts bpffs, where programs keep their state, and writes the object files that these ports
/// need.
pub(super) fn objects(plan: &Plan, ports: &[&SwitchPort]) -> String {
    if LinuxForm::of(plan) != LinuxForm::Bpf || ports.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "\n# Programs that mark and drop. What they count for a port is in\n\
         # $BPFFS/gradwire/PORT/{STATE_PATH}.\n\
         : \"${{BPFFS:=/sys/fs/bpf}}\"\n\
         grep -q \" $BPFFS bpf \" /proc/mounts || mount -t bpf bpf \"$BPFFS\"\n\
         objects=$(mktemp -d)\n\
         trap 'rm -r \"$objects\"' EXIT\n"
    );
    let objects = ports.iter().map(|port| ObjectFile::of_port(plan, port));
    let objects: BTreeMap<String, ObjectFile> = objects
        .map(|object| (object.name.clone(), object))
        .collect();
    for (name, object) in objects {
        let _ = write!(
            text,
            "base64 -d >\"$objects\"/{name} <<'END'\n{}END\n",
            object.base64()
        );
    }
    text
}

/// The filter that runs the program; it comes before all others.
fn program(plan: &Plan, port: &SwitchPort) -> [String; 3] {
    let name = quoted(&port.name);
    let folder = format!("\"$BPFFS\"/gradwire/{name}");
    let object = ObjectFile::of_port(plan, port).name;
    [
        format!("mkdir -p {folder}"),
        format!("rm -f {folder}/{STATE_PATH}"),
        format!(
            "TC_BPF_MNT={folder} tc filter add dev {name} parent 1: protocol all pref 5 \
             bpf direct-action object-file \"$objects\"/{object} section classifier"
        ),
    ]
}

/// The commands, in order, for a port that has the kernel's default discipline.
fn lines(plan: &Plan, port: &SwitchPort) -> Vec<String> {
    let form = LinuxForm::of(plan);
    let name = quoted(&port.name);
    let mut lines: Vec<String> = roots(plan)
        .into_iter()
        .map(|rest| format!("tc qdisc add dev {name} {rest}"))
        .collect();
    if form == LinuxForm::Lab || form.has_classes() {
        let class = link_class(port.rate);
        lines.insert(1, format!("tc class add dev {name} {class}"));
    }
    for queue in &plan.queues {
        if form.has_classes() {
            let class = form.class(queue.number);
            let rest = queue_class(plan, queue, port.rate);
            lines.push(format!(
                "tc class add dev {name} parent 1:1 classid {class} {rest}"
            ));
        }
        lines.push(format!(
            "tc qdisc add dev {name} parent {} handle {} {}",
            form.class(queue.number),
            LinuxForm::leaf(queue),
            leaf(plan, queue, port)
        ));
    }
    if form == LinuxForm::Bpf {
        lines.extend(program(plan, port));
    }
    let filters = filters(plan);
    lines.extend(filters.map(|rest| format!("tc filter add dev {name} parent {rest}")));
    lines
}

/// The disciplines at the root and, if that has no bands itself, below it.
fn roots(plan: &Plan) -> Vec<String> {
    let last = BANDS - 1;
    let bands = format!(
        "prio bands {BANDS} priomap{}",
        format!(" {last}").repeat(16)
    );
    match LinuxForm::of(plan) {
        LinuxForm::Switch | LinuxForm::Host => vec![format!("root handle 1: {bands}")],
        LinuxForm::Lab => vec![
            "root handle 1: htb default 1".to_owned(),
            format!("parent 1:1 handle 2: {bands}"),
        ],
        form @ (LinuxForm::Bpf | LinuxForm::Shared | LinuxForm::SharedHost) => {
            let last = plan.queues.last().map_or(0, |queue| queue.number);
            let class = form.class(last);
            vec![format!("root handle 1: htb default {}", &class[2..])]
        }
    }
}

fn link_class(rate: Rate) -> String {
    let bps = rate.as_bits_per_second();
    let burst = burst(rate);
    format!("parent 1: classid 1:1 htb quantum 1514 rate {bps}bit burst {burst} cburst {burst}")
}

/// A burst of a class: the bytes that the link sends in a quarter of a millisecond, since the
/// kernel's timer may be late.
fn burst(rate: Rate) -> u64 {
    (rate.as_bits_per_second() / 8 / 4000).max(BURST_LEAST)
}

/// Classes get their own rate first, in the order of `prio`, and then what is left, in the same
/// order: so the queue of others has its share as its rate, and strict queues have enough of one
/// that they still go before it.
fn queue_class(plan: &Plan, queue: &PlanQueue, rate: Rate) -> String {
    let bps = rate.as_bits_per_second();
    let most = burst(rate);
    let turn = BANDS - 1 - queue.number;
    let own = match own_percent(plan, queue) {
        None => format!("rate {ASSURED_BPS}bit ceil {bps}bit burst 1600"),
        Some(percent) => {
            let own = Rate::from_bits_per_second((bps / 100 * percent).max(ASSURED_BPS));
            let (own, burst) = (own.as_bits_per_second(), burst(own));
            format!("rate {own}bit ceil {bps}bit burst {burst}")
        }
    };
    format!("htb prio {turn} quantum 1514 {own} cburst {most}")
}

/// The percents of the link that a queue has for itself, where others have a share: they their
/// share, strict queues together what is left of it.
fn own_percent(plan: &Plan, queue: &PlanQueue) -> Option<u64> {
    let others = plan
        .queues
        .iter()
        .find(|queue| queue.purpose == Purpose::Others);
    let share = u64::from(others?.percent()?);
    let strict = plan.queues.iter().filter(|queue| queue.percent().is_none());
    match queue.purpose {
        Purpose::Others => Some(share),
        Purpose::Data(_) | Purpose::Gradients => None,
        Purpose::Reserved | Purpose::Control => Some((100 - share) / strict.count() as u64),
    }
}

fn leaf(plan: &Plan, queue: &PlanQueue, port: &SwitchPort) -> String {
    let limit = plan.site.buffer.port_bytes().get().min(u64::from(u32::MAX));
    match (LinuxForm::of(plan), plan.profile(queue, port)) {
        (LinuxForm::Host | LinuxForm::SharedHost, _) => format!("pfifo limit {HOST_PACKETS}"),
        (LinuxForm::Switch | LinuxForm::Lab | LinuxForm::Shared, Some(profile)) => {
            red(profile, queue, limit)
        }
        _ => format!("bfifo limit {limit}"),
    }
}

/// RED as a step. With `avpkt 1` and `burst` = `min`, tc computes W = 1/2, its fastest average,
/// which falls to zero after a microsecond without packets.
fn red(profile: &ThresholdProfile, queue: &PlanQueue, limit: u64) -> String {
    let (low, high) = (
        profile.threshold.low_bytes(),
        profile.threshold.high_bytes(),
    );
    let bandwidth = profile.rate.as_bits_per_second().min(BANDWIDTH_MOST_BPS);
    let ecn = match queue.has_gradients() {
        true => "ecn",
        false => "ecn nodrop",
    };
    format!(
        "red limit {limit} min {low} max {high} probability 1 avpkt 1 burst {low} \
         bandwidth {bandwidth}bit {ecn}"
    )
}

/// The filters that lead packets to queues, as arguments of tc after `parent`.
fn filters(plan: &Plan) -> impl Iterator<Item = String> {
    let form = LinuxForm::of(plan);
    let at = form.queues_at();
    let first = plan.queues.first().map_or(0, |queue| queue.number);
    let first = form.class(first);
    let urgent = [
        format!("{at} protocol arp pref 10 u32 match u32 0 0 flowid {first}"),
        format!(
            "{at} protocol ipv6 pref 11 u32 match u8 58 0xff at 6 match u8 255 0xff at 7 \
             flowid {first}"
        ),
    ];
    let mut ipv4 = Vec::new();
    let mut ipv6 = Vec::new();
    for queue in &plan.queues {
        let class = form.class(queue.number);
        for dscp in queue.dscps.iter().chain(&queue.droppable) {
            let field = dscp.0 << 2;
            ipv4.push(format!(
                "{at} protocol ip pref 20 u32 match ip dsfield {field:#04x} 0xfc flowid {class}"
            ));
            ipv6.push(format!(
                "{at} protocol ipv6 pref 21 u32 match ip6 priority {field:#04x} 0xfc flowid {class}"
            ));
        }
    }
    urgent.into_iter().chain(ipv4).chain(ipv6)
}

/// A word of a shell command, quoted if it must be.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-@:/+".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Text for a comment, without control characters, which could end its line.
fn one_line(text: &str) -> String {
    let seen = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(seen).collect()
}
