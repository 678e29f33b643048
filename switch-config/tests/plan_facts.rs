//! Promises of every plan, whatever the platform: by limits that no real platform has.

use gradwire_fabric::policy::{Balance, QosPolicy, ServiceOrder, SwitchBuffer};
use gradwire_protocol::job::Job;
use gradwire_protocol::units::{ByteCount, Dscp, Rate, Share, Span};
use gradwire_switch_config::limits::{
    Alphas, Fact, NotEct, PlatformLimits, Thresholds, Trims, Unit,
};
use gradwire_switch_config::plan::{
    NoteKind, Plan, PlanError, PlanQueue, Purpose, Selection, Site, SwitchPort,
};
use gradwire_switch_config::target::SwitchTarget;

const SOURCE: &str = "made up";

fn limits() -> PlatformLimits {
    PlatformLimits {
        queues: Fact::new(8, SOURCE),
        thresholds: Fact::new(
            Thresholds {
                unit: Unit::Bytes(1000),
                least: 1,
                most: 2000,
                apart: 1,
            },
            SOURCE,
        ),
        not_ect: Fact::new(NotEct::DropsEarly, SOURCE),
        drop_precedence: Fact::new(true, SOURCE),
        marks_beside_precedence: Fact::new(true, SOURCE),
        order_beside_share: Fact::new(true, SOURCE),
        marks_without_drops: Fact::new(true, SOURCE),
        alphas: Fact::new(Some(Alphas { least: -8, most: 7 }), SOURCE),
        trims: Fact::new(None::<Trims>, SOURCE),
        balances: Fact::new(vec!["ecmp".to_owned()], SOURCE),
        remarks: Vec::new(),
    }
}

fn policy() -> QosPolicy {
    QosPolicy::of_job(&Job::default(), Span::from_nanos(16_050))
}

fn site() -> Site {
    let port = |(name, gbps): (&str, u64)| SwitchPort {
        name: name.to_owned(),
        rate: Rate::from_gbps(gbps),
    };
    Site {
        origin: "here".to_owned(),
        ports: [("p0", 100), ("p1", 25), ("p2", 100)].map(port).into(),
        buffer: SwitchBuffer::PerPort(ByteCount::mib(2)),
    }
}

fn plan(limits: &PlatformLimits, policy: &QosPolicy) -> Result<Plan, PlanError> {
    let target = SwitchTarget::read("linux").expect("a target");
    Plan::new(target, limits, policy, site())
}

fn refusal(limits: &PlatformLimits, policy: &QosPolicy) -> String {
    let error = plan(limits, policy).expect_err("this makes no plan");
    error.to_string()
}

fn notes(plan: &Plan, kind: NoteKind) -> Vec<&str> {
    let notes = plan.notes.iter().filter(|note| note.kind == kind);
    notes.map(|note| note.text.as_str()).collect()
}

#[test]
fn the_first_class_has_the_highest_queue_below_the_reserved_one() {
    let plan = plan(&limits(), &policy()).expect("a plan");
    let numbers: Vec<u8> = plan.queues.iter().map(|queue| queue.number).collect();
    assert_eq!(numbers, [7, 6, 5, 4, 3, 2, 1, 0]);
    assert_eq!(plan.queues[0].purpose, Purpose::Reserved);
    assert_eq!(plan.queues[0].dscps, [46, 48, 56].map(Dscp));
    assert_eq!(plan.queues[1].purpose, Purpose::Control);
    assert_eq!(plan.queue_of_dscp(Dscp(34)).number, 5);
    assert_eq!(plan.queue_of_dscp(Dscp(63)).number, 0);
}

#[test]
fn without_a_spare_queue_reserved_dscps_share_the_control_queue() {
    let limits = PlatformLimits {
        queues: Fact::new(7, SOURCE),
        ..limits()
    };
    let plan = plan(&limits, &policy()).expect("a plan");
    assert_eq!(plan.queues.len(), 7);
    assert_eq!(plan.queues[0].dscps, [40, 46, 48, 56].map(Dscp));
    assert_eq!(plan.queues[0].number, 6);
}

#[test]
fn the_simulated_switch_puts_every_dscp_into_the_same_class_as_the_plan() {
    for untagged in ["share", "below", "30%"] {
        let mut job = Job::default();
        job.priority.droppable_dscps = [38, 30, 22, 14, 12, 1].map(Dscp).to_vec();
        job.set("priority.untagged", untagged).expect("allowed");
        let policy = QosPolicy::of_job(&job, Span::from_micros(10));
        let plan = plan(&limits(), &policy).expect("a plan");
        let simulated = policy.queue_of_dscp();
        for dscp in (0..64).map(Dscp) {
            let class = match plan.queue_of_dscp(dscp).purpose {
                Purpose::Reserved | Purpose::Control => 0,
                Purpose::Data(class) => class.0,
                Purpose::Gradients => unreachable!("these limits keep an order"),
                Purpose::Others => 6,
            };
            assert_eq!(simulated[usize::from(dscp.0)], class, "DSCP {dscp}");
        }
    }
}

#[test]
fn others_have_a_share_without_early_drops() {
    let mut job = Job::default();
    job.set("priority.untagged", "30%").expect("a share");
    let policy = QosPolicy::of_job(&job, Span::from_micros(16));
    let plan_of = |order, marks| {
        let limits = PlatformLimits {
            order_beside_share: Fact::new(order, SOURCE),
            marks_without_drops: Fact::new(marks, SOURCE),
            ..limits()
        };
        plan(&limits, &policy).expect("a plan")
    };
    let percents =
        |plan: &Plan| -> Vec<Option<u8>> { plan.queues.iter().map(PlanQueue::percent).collect() };
    let (nested, flat) = (plan_of(true, true), plan_of(false, false));
    let gradients = [Some(70); 5];
    let strict = [None; 2];
    let expected = [&strict[..], &gradients, &[Some(30)]].concat();
    assert_eq!(percents(&nested), expected);
    let expected = [&strict[..], &[Some(70), Some(30)]].concat();
    assert_eq!(percents(&flat), expected);
    assert_eq!(flat.queues[2].name(), "gradients");
    assert_eq!(flat.queues[2].dscps, [8, 10, 18, 26, 34].map(Dscp));
    let last = |plan: &Plan| plan.queues.last().cloned().expect("queues");
    assert_eq!(last(&nested).name(), "others");
    assert_eq!(last(&nested).marks_above, Some(Share::ALL));
    assert!(!last(&nested).has_gradients());
    assert_eq!(last(&flat).marks_above, None);
    assert_eq!(
        notes(&nested, NoteKind::Formula)[2],
        "queue 0 has every DSCP that is not named, and 30 % of the link while it has packets; the \
         queues of gradients keep their order in the rest"
    );
    assert_eq!(
        notes(&flat, NoteKind::Realised),
        [
            "queue 0 has every DSCP that is not named, and 30 % of the link while it has packets; \
             all classes of gradients share queue 1, since no order can be kept beside a share \
             (made up)"
        ]
    );
    let warned = |plan: &Plan| notes(plan, NoteKind::Warning).join("\n");
    assert!(!warned(&nested).contains("starve"), "{}", warned(&nested));
    assert!(!warned(&nested).contains("without ECN are dropped"));
}

#[test]
fn a_threshold_is_rate_times_rtt_rounded_down_to_the_unit_and_told() {
    let plan = plan(&limits(), &policy()).expect("a plan");
    let names: Vec<&str> = plan.profiles.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["25G", "100G"]);
    let fast = plan.profiles[1].threshold;
    assert_eq!(fast.exact, ByteCount::new(200_625));
    assert_eq!((fast.low_bytes(), fast.high_bytes()), (200_000, 201_000));
    assert_eq!(policy().marks_above(1, Rate::from_gbps(100)), 200_625);
    assert_eq!(
        notes(&plan, NoteKind::Formula)[1],
        "100G: K = share x rate x RTT = 100% x 100G x 16.05 us = 200625 bytes (DCTCP needs 1/7 \
         of rate x RTT: SIGCOMM 2010, 3.3)"
    );
    assert_eq!(
        notes(&plan, NoteKind::Rounded)[1],
        "100G: from 200000 to 201000 bytes instead of at 200625"
    );
    assert!(notes(&plan, NoteKind::Warning)[0].starts_with("strict priority"));
}

#[test]
fn shares_that_look_alike_have_profiles_of_different_names() {
    let mut policy = policy();
    for (queue, share) in policy.queues.iter_mut().skip(1).zip([0.496, 0.504, 0.125]) {
        queue.marks_above = Share::new(share);
    }
    let plan = plan(&limits(), &policy).expect("a plan");
    let mut names: Vec<&str> = plan.profiles.iter().map(|one| one.name.as_str()).collect();
    assert!(names.contains(&"25G-12_5"));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn a_percentage_is_of_what_a_port_can_hold() {
    let limits = PlatformLimits {
        thresholds: Fact::new(
            Thresholds {
                unit: Unit::PercentOfPort,
                least: 1,
                most: 100,
                apart: 1,
            },
            SOURCE,
        ),
        ..limits()
    };
    let plan = plan(&limits, &policy()).expect("a plan");
    let fast = plan.profiles[1].threshold;
    assert_eq!((fast.low, fast.high), (9, 10));
    assert_eq!(fast.low_bytes(), (2 << 20) * 9 / 100);
}

#[test]
fn where_not_ect_is_not_dropped_early_a_second_dscp_does_it_or_is_asked_for() {
    let limits = PlatformLimits {
        not_ect: Fact::new(NotEct::DropsWhenFull, SOURCE),
        marks_beside_precedence: Fact::new(false, SOURCE),
        ..limits()
    };
    assert_eq!(
        refusal(&limits, &policy()),
        "linux:switch does not drop not-ECT packets early (made up); give droppable packets DSCPs \
         of their own in job.toml, under [priority]: droppable_dscps = [38, 30, 22, 14, 9, 1]"
    );
    let mut job = Job::default();
    job.priority.droppable_dscps = [38, 30, 22, 14, 9, 1].map(Dscp).to_vec();
    let policy = QosPolicy::of_job(&job, Span::from_micros(16));
    let plan = plan(&limits, &policy).expect("a plan");
    assert_eq!(plan.selection, Selection::Precedence);
    assert_eq!(notes(&plan, NoteKind::Realised).len(), 1);
    let neither = PlatformLimits {
        drop_precedence: Fact::new(false, SOURCE),
        ..limits
    };
    assert!(refusal(&neither, &policy).contains("neither by ECN nor by DSCP"));
}

#[test]
fn what_contradicts_itself_or_the_platform_is_refused_in_one_line() {
    let few = PlatformLimits {
        queues: Fact::new(4, SOURCE),
        ..limits()
    };
    assert_eq!(
        refusal(&few, &policy()),
        "the job has 7 classes, linux:switch has 4 strict queues a port: shorten priority.dscps \
         to 4 entries"
    );
    let change = |change: &dyn Fn(&mut QosPolicy)| {
        let mut policy = policy();
        change(&mut policy);
        refusal(&limits(), &policy)
    };
    assert_eq!(
        change(&|policy| policy.queues[3].dscp = Dscp(34)),
        "DSCP 34 is used twice, by class 1 and class 3: each class needs its own"
    );
    assert!(change(&|policy| policy.queues[1].dscp = Dscp(48)).contains("DSCP 48 of class 1"));
    assert_eq!(
        change(&|policy| policy.rtt = Span::from_micros(400)),
        "the threshold, 5000000 bytes, is above the buffer of a port, 2097152 bytes: give a \
         smaller --rtt, or a larger buffer in the fabric"
    );
    assert!(change(&|policy| policy.rtt = Span::from_micros(161)).contains("at most 2000 units"));
    assert!(change(&|policy| policy.balance = Balance::Random).contains("it can by ecmp"));
    assert!(
        change(&|policy| policy.order = ServiceOrder::Urgency).contains("simulated switches only")
    );
    assert!(change(&|policy| policy.trims_to = Some(ByteCount::new(64))).contains("not trim"));
}

#[test]
fn a_dynamic_threshold_is_a_power_of_two_within_the_limits() {
    let target = SwitchTarget::read("linux").expect("a target");
    let with = |alpha| {
        let site = Site {
            buffer: SwitchBuffer::Shared {
                bytes: ByteCount::mib(32),
                alpha,
            },
            ..site()
        };
        Plan::new(target, &limits(), &policy(), site)
    };
    let plan = with(0.6).expect("a plan");
    assert_eq!(plan.alpha, Some(-1));
    assert!(notes(&plan, NoteKind::Rounded).contains(&"alpha 0.6 is written as 2^-1"));
    let error = with(1000.0).expect_err("2^10 is too much");
    assert!(error.to_string().ends_with("can write 2^-8 to 2^7"));
}
