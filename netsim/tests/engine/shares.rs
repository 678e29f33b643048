//! Others have their share of a link, whatever the job's queues hold, and these keep their order.

use gradwire_fabric::policy::QosPolicy;
use gradwire_netsim::engine::host::Envelope;
use gradwire_protocol::job::Job;
use gradwire_protocol::machine::Ecn;
use gradwire_protocol::units::{Dscp, Span};

use crate::world::{Talked, fabric, packet, talk};

const BYTES: u32 = 4162;
const HIGH: Dscp = Dscp(34);
const NEXT: Dscp = Dscp(26);
const OTHERS: Dscp = Dscp(0);

fn policy(share: &str) -> QosPolicy {
    let mut job = Job::default();
    job.set("priority.untagged", share).expect("a share");
    let mut policy = QosPolicy::of_job(&job, Span::from_micros(10));
    for queue in &mut policy.queues {
        queue.marks_above = None;
    }
    policy
}

fn burst(dscp: Dscp, count: u32, bytes: u32) -> Vec<(Span, Envelope)> {
    let envelope = Envelope {
        dscp,
        ..packet(3, bytes)
    };
    (0..count).map(|_| (Span::ZERO, envelope)).collect()
}

/// Three hosts send to a fourth. No queue runs empty before the first of them has sent everything.
fn three_to_one(policy: &QosPolicy, plans: [Vec<(Span, Envelope)>; 3]) -> Talked {
    let mut plans = plans.to_vec();
    plans.push(Vec::new());
    talk(&fabric("single:4@100G,buffer=64MiB"), policy, plans)
}

/// Bytes of others among the first `count` bytes that arrive.
fn share_of_others(talked: &Talked, count: u64) -> f64 {
    let (mut all, mut others) = (0, 0);
    for (_, envelope) in &talked.hosts[3].heard {
        all += u64::from(envelope.bytes);
        others += match envelope.dscp == OTHERS {
            true => u64::from(envelope.bytes),
            false => 0,
        };
        if all >= count {
            break;
        }
    }
    others as f64 / all as f64
}

#[test]
fn others_get_their_share_and_classes_keep_their_order() {
    for (text, share) in [("1%", 0.01), ("30%", 0.3), ("90%", 0.9)] {
        let policy = policy(text);
        let plans = [
            burst(HIGH, 400, BYTES),
            burst(NEXT, 400, BYTES),
            burst(OTHERS, 2400, BYTES / 6),
        ];
        let talked = three_to_one(&policy, plans);
        let found = share_of_others(&talked, 300 * u64::from(BYTES));
        assert!((found - share).abs() < 0.01, "{found} of {share}");
        let order = talked.hosts[3].heard.iter().map(|(_, one)| one.dscp);
        let classes: Vec<Dscp> = order.filter(|dscp| *dscp != OTHERS).collect();
        // Until the switch's port is busy, packets of both hosts pass as they come.
        assert!(classes[3..].is_sorted_by(|one, next| one.0 >= next.0));
    }
}

#[test]
fn each_takes_the_link_that_the_other_leaves() {
    let policy = policy("30%");
    for dscp in [HIGH, OTHERS] {
        let plans = [burst(dscp, 200, BYTES), burst(dscp, 200, BYTES), Vec::new()];
        let talked = three_to_one(&policy, plans);
        let heard = &talked.hosts[3].heard;
        let span = heard[399].0.since(heard[0].0);
        assert_eq!(span, Span::from_picos(332_960) * 399, "{dscp}");
    }
}

#[test]
fn others_without_ecn_are_not_dropped_early() {
    let mut policy = policy("30%");
    let full = QosPolicy::of_job(&Job::default(), Span::from_micros(1));
    policy.rtt = full.rtt;
    for (queue, marks) in policy.queues.iter_mut().zip(full.queues) {
        queue.marks_above = marks.marks_above;
    }
    for (dscp, dropped) in [(OTHERS, false), (NEXT, true)] {
        let not_ect = |mut plan: Vec<(Span, Envelope)>| {
            plan.iter_mut().for_each(|(_, one)| one.ecn = Ecn::NotEct);
            plan
        };
        let plans = [
            not_ect(burst(dscp, 200, BYTES)),
            burst(dscp, 200, BYTES),
            Vec::new(),
        ];
        let talked = three_to_one(&policy, plans);
        let classes = &talked.port_to(3).record.classes;
        let [early, marked] = classes.iter().fold([0, 0], |[early, marked], class| {
            [early + class.dropped_early, marked + class.marked]
        });
        assert_eq!(early > 0, dropped, "DSCP {dscp}");
        assert!(marked > 100, "DSCP {dscp}: {marked} marked");
    }
}
