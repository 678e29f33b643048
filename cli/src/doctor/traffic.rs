//! The fate of packets on a path to another host: their DSCP and ECN, runs of them, and the losses
//! and order of many.

use std::collections::BTreeMap;

use gradwire_transport::probe::{GsoRuns, ProbeSeries, TagFate};

use super::finding::HostFinding;

/// Stands for the name of an interface that only the other host knows.
pub(super) const ELSEWHERE: &str = "IF";
/// Losses above this share are more than a job's repairs hide.
const LOSS_MAX: f64 = 0.01;

/// How the DSCPs of the job's classes arrive.
pub(super) fn dscp(tags: &[TagFate]) -> HostFinding {
    let check = "dscp";
    let mut changes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut survivors = Vec::new();
    for tag in tags {
        let sent = tag.sent >> 2;
        let mut kept = true;
        for (way, seen) in [("there", tag.there), ("back", tag.back)] {
            let change = match seen.map(|seen| seen >> 2) {
                Some(seen) if seen == sent => continue,
                Some(0) => format!("bleached to 0 on the way {way}"),
                Some(seen) => format!("rewritten to {seen} on the way {way}"),
                None => format!("lost on the way {way}"),
            };
            kept = false;
            changes.entry(change).or_default().push(sent.to_string());
        }
        if kept {
            survivors.push(sent.to_string());
        }
    }
    if changes.is_empty() {
        return HostFinding::ok(
            check,
            format!("{} arrive as sent, both ways", survivors.join(", ")),
        );
    }
    let listed = changes
        .iter()
        .map(|(change, sent)| format!("{} {change}", sent.join(", ")));
    let found = listed.collect::<Vec<_>>().join("; ");
    let mend = match survivors.as_slice() {
        [_, _, ..] => format!(
            "priority.dscps = [{}] in job.toml  # or trust DSCP on the switches between",
            survivors.join(", ")
        ),
        _ => "tc filter show dev IF egress; nft list ruleset  # on the hosts and routers between; \
              and trust DSCP on the switches"
            .to_owned(),
    };
    let lost = tags
        .iter()
        .any(|tag| tag.there.is_none() || tag.back.is_none());
    if lost {
        return HostFinding::problem(check, found)
            .costs("packets of these classes never arrive: a job ends with the peer lost")
            .mend(mend);
    }
    HostFinding::warning(check, found)
        .costs("switches cannot tell the classes apart: no priority for front layers and control")
        .mend(mend)
}

/// How ECT(0) and CE arrive.
pub(super) fn ecn(tags: &[TagFate]) -> HostFinding {
    let check = "ecn";
    let mut changes = Vec::new();
    for tag in tags {
        let name = |bits: u8| ["not-ECT", "ECT(1)", "ECT(0)", "CE"][usize::from(bits & 3)];
        for (way, seen) in [("there", tag.there), ("back", tag.back)] {
            let change = match seen {
                Some(seen) if seen & 3 == tag.sent & 3 => continue,
                Some(seen) => format!("arrives as {} on the way {way}", name(seen)),
                None => format!("is lost on the way {way}"),
            };
            changes.push(format!("{} {change}", name(tag.sent)));
        }
    }
    if changes.is_empty() {
        return HostFinding::ok(check, "ECT(0) and CE arrive as sent, both ways");
    }
    let lost = tags
        .iter()
        .any(|tag| tag.there.is_none() || tag.back.is_none());
    let found = changes.join("; ");
    let finding = match lost {
        true => HostFinding::problem(check, found),
        false => HostFinding::warning(check, found),
    };
    finding
        .costs("queues drop protected packets, and senders detect congestion by loss alone")
        .mend("nft list ruleset | grep ecn  # on the hosts and routers between")
}

/// Whether runs of packets stay runs; `interface` is this host's.
pub(super) fn runs(runs: &GsoRuns, interface: &str) -> Vec<HostFinding> {
    let packets = runs.packets;
    let sent = match runs.taken {
        (true, true) => HostFinding::ok("gso_run", format!("both kernels take runs of {packets}")),
        (here, _) => {
            let (who, interface) = match here {
                true => ("the peer's kernel", ELSEWHERE),
                false => ("this kernel", interface),
            };
            HostFinding::problem(
                "gso_run",
                format!("{who} refuses to send a run of {packets}"),
            )
            .costs("packets leave one by one: an eighth of the speed (5 of 40 Gb/s a core)")
            .mend(format!(
                "ethtool -K {interface} tx on gso on  # and Linux 4.18 or later"
            ))
        }
    };
    let mut findings = vec![sent];
    if runs.taken.0 {
        findings.push(glued("gro_there", ELSEWHERE, (runs.glued_there, packets)));
        findings.push(glued("gro_back", interface, (runs.glued_back, packets)));
    }
    findings
}

fn glued(name: &str, interface: &str, (glued, packets): (usize, usize)) -> HostFinding {
    let who = match name {
        "gro_there" => "the peer",
        _ => "this host",
    };
    match glued {
        0 => HostFinding::problem(
            name,
            format!("no run of {packets} packets arrives at {who}"),
        )
        .costs("a job ends with the peer lost")
        .mend("ethtool -K IF tx-udp-segmentation off  # on the other side, which sends"),
        1 => HostFinding::problem(name, format!("runs arrive at {who} as single packets"))
            .costs("packets are read one by one: a third of the speed (13 of 40 Gb/s a core)")
            .mend(format!(
                "ethtool -K {interface} gro on  # a virtual one: gso on at its other end"
            )),
        _ if glued < packets => {
            let found =
                format!("of runs of {packets} packets at most {glued} arrive together at {who}");
            HostFinding::warning(name, found)
                .costs("runs of 4 make 12.7 Gb/s a core, of 8 18.6, of 16 31.6")
                .mend(format!(
                    "ethtool -K {interface} gro on; ip link set dev {interface} gro_max_size 65536"
                ))
        }
        _ => HostFinding::ok(
            name,
            format!("runs of {packets} packets arrive at {who} as one"),
        ),
    }
}

/// Losses and order of many small packets.
pub(super) fn series(series: &ProbeSeries) -> [HostFinding; 2] {
    let ProbeSeries {
        sent,
        lost_there,
        lost_back,
        kernel_drops,
        ..
    } = *series;
    let lost = (lost_there + lost_back).saturating_sub(kernel_drops);
    let mut found = format!("of {sent} probes {lost_there} were lost there, {lost_back} back");
    if kernel_drops > 0 {
        found += &format!(", {kernel_drops} of them by the hosts' own kernels");
    }
    let share = f64::from(lost) / f64::from(sent.max(1));
    let look = "ip -s link show dev IF; ethtool -S IF | grep -i -E 'drop|err'  # on both hosts";
    let loss = if share >= LOSS_MAX {
        HostFinding::problem("loss", found)
            .costs("lossless messages are repaired round trip by round trip")
            .mend(look)
    } else if lost > 0 {
        HostFinding::warning("loss", found)
            .costs("each loss is repaired after a round trip, or borne within the tolerance")
            .mend(look)
    } else if kernel_drops > 0 {
        HostFinding::warning("loss", found)
            .costs("a host that is too busy to read loses what no network lost")
            .mend("sysctl -w net.core.rmem_max=8388608  # on both hosts")
    } else {
        HostFinding::ok("loss", found)
    };
    let (there, back) = (series.overtaken_there, series.overtaken_back);
    let overtaken = format!("{there} probes were overtaken there, {back} back");
    let order = match there + back {
        0 => format!("{overtaken}: a lost packet is noticed when the next one of its path comes"),
        _ => format!("{overtaken}: gaps decide about lost packets, not the order on a path"),
    };
    [loss, HostFinding::ok("reordering", order)]
}

#[cfg(test)]
mod tests {
    use super::super::finding::{FindingState, worst};
    use super::*;

    fn same(sent: u8) -> TagFate {
        TagFate {
            sent,
            there: Some(sent),
            back: Some(sent),
        }
    }

    #[test]
    fn what_becomes_of_each_dscp_is_named_by_direction() {
        let rewritten = TagFate {
            there: Some(8 << 2),
            ..same(40 << 2)
        };
        let bleached = TagFate {
            back: Some(0),
            ..same(34 << 2)
        };
        let finding = dscp(&[rewritten, bleached, same(26 << 2), same(18 << 2)]);
        assert_eq!(finding.state, FindingState::Warning);
        let found = "34 bleached to 0 on the way back; 40 rewritten to 8 on the way there";
        assert_eq!(finding.found, found);
        let mend = finding.mend.expect("it can be mended");
        assert!(mend.starts_with("priority.dscps = [26, 18]"), "{mend}");
        let gone = TagFate {
            there: None,
            ..same(40 << 2)
        };
        assert_eq!(dscp(&[gone]).state, FindingState::Problem);
        assert_eq!(dscp(&[same(40 << 2)]).state, FindingState::Ok);
    }

    #[test]
    fn marks_that_do_not_arrive_are_named() {
        let bleached = TagFate {
            there: Some(40 << 2),
            ..same(40 << 2 | 3)
        };
        let finding = ecn(&[same(40 << 2 | 2), bleached]);
        assert_eq!(finding.state, FindingState::Warning);
        assert_eq!(finding.found, "CE arrives as not-ECT on the way there");
    }

    #[test]
    fn kernel_drops_are_no_network_loss() {
        let measured = |lost_there, kernel_drops| ProbeSeries {
            sent: 10_000,
            lost_there,
            kernel_drops,
            ..ProbeSeries::default()
        };
        assert_eq!(worst(&series(&measured(0, 0))), FindingState::Ok);
        assert_eq!(worst(&series(&measured(3, 0))), FindingState::Warning);
        assert_eq!(worst(&series(&measured(100, 0))), FindingState::Problem);
        assert_eq!(worst(&series(&measured(100, 100))), FindingState::Warning);
    }

    #[test]
    fn runs_that_arrive_as_single_packets_are_a_problem() {
        let measured = |glued_there| GsoRuns {
            packets: 16,
            taken: (true, true),
            glued_there,
            glued_back: 16,
        };
        assert_eq!(worst(&runs(&measured(16), "eth0")), FindingState::Ok);
        assert_eq!(worst(&runs(&measured(8), "eth0")), FindingState::Warning);
        assert_eq!(worst(&runs(&measured(1), "eth0")), FindingState::Problem);
    }
}
