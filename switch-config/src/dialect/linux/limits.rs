//! What Linux can do as a switch or a sending host, and where that is known from.

use super::form::LinuxForm;
use crate::limits::{Fact, NotEct, PlatformLimits, Thresholds, Unit};
use gradwire_fabric::policy::Balance;

const RED: &str = "tc-red(8); net/sched/sch_red.c, red_enqueue, with ecn and without nodrop; \
                   measured with Linux 6.1";
const THRESHOLDS: &str = "include/net/red.h, red_check_params: a threshold of 30 bits at W = 1/2";
const NO_POOLS: &str = "tc has no memory that queues share: each has a limit of its own";

const QUEUES: Fact<u8> = Fact::new(
    8,
    "sch_prio has 16 (TCQ_PRIO_BANDS), but drivers that offload it at most 8 (mlxsw, \
     spectrum_qdisc.c: IEEE_8021QAZ_MAX_TCS)",
);

/// A step, as nearly as RED has it: always above the upper threshold, never below the lower one.
const STEP: Thresholds = Thresholds {
    unit: Unit::Bytes(1),
    least: 1,
    most: (1 << 30) - 1,
    apart: 1,
};

const SWITCH_REMARKS: &[Fact<&str>] = &[
    Fact::new(
        "RED compares an average: with W = 1/2, the fastest that tc takes, it follows the queue \
         within two packets",
        "tc/tc_red.c, tc_red_eval_ewma",
    ),
    Fact::new(
        "packets that the kernel sends in one piece (GSO) are marked or dropped in one piece",
        "net/sched/sch_red.c",
    ),
    Fact::new(
        "ARP and IPv6 neighbour discovery go to the highest queue: without them nothing passes",
        "ours",
    ),
    Fact::new(
        "the filters by DSCP run in software; a driver that offloads prio and red maps DSCPs by \
         `dcb app`, which is not written and was not tried",
        "net/sched/cls_u32.c; dcb-app(8)",
    ),
];

const LAB_REMARKS: &[Fact<&str>] = &[
    Fact::new(
        "a virtual port has no rate: HTB above prio makes one, with bursts of a quarter of a \
         millisecond or 4 KB",
        "ours",
    ),
    Fact::new(
        "behind HTB, RED does not notice that the lowest busy queue has drained: after a congested \
         time its first packets, log2(depth / threshold) of them, are judged by what was there",
        "net/sched/sch_red.c, red_dequeue; sch_htb.c, htb_deactivate; measured with Linux 6.1",
    ),
    SWITCH_REMARKS[0],
    SWITCH_REMARKS[1],
    SWITCH_REMARKS[2],
];

const BPF_REMARKS: &[Fact<&str>] = &[
    Fact::new(
        "for kernels without prio and red: HTB serves classes by `prio`, and an eBPF program at \
         its root drops not-ECT and marks ECT packets",
        "ours; measured with Linux 6.18",
    ),
    Fact::new(
        "the program counts what each queue would hold on a link of exactly this rate, instead of \
         asking the queue; HTB sends in bursts, so the true queue may be shorter by one burst",
        "ours",
    ),
    Fact::new(
        "a lower class always gets 8 kbit/s: HTB has no class without a rate",
        "net/sched/sch_htb.c",
    ),
    Fact::new(
        "tc must be built with libbpf, and the counters of marks and drops are read from \
         /sys/fs/bpf; tc's own statistics have only what was sent and what found no room",
        "tc-bpf(8)",
    ),
    SWITCH_REMARKS[1],
    SWITCH_REMARKS[2],
];

const HOST_REMARKS: &[Fact<&str>] = &[
    Fact::new(
        "nothing is dropped or marked early: a host that loses its own packets gains nothing",
        "ours",
    ),
    Fact::new(
        "prio takes the place of mq: all queues of the card are fed under one lock",
        "net/sched/sch_prio.c, sch_mq.c",
    ),
    SWITCH_REMARKS[2],
];

pub(super) fn limits(form: LinuxForm) -> PlatformLimits {
    let not_ect = match form {
        LinuxForm::Switch | LinuxForm::Lab => Fact::new(NotEct::DropsEarly, RED),
        LinuxForm::Bpf => Fact::new(NotEct::DropsEarly, "our program; measured with Linux 6.18"),
        LinuxForm::Host => Fact::new(NotEct::Kept, "a sender has no thresholds: ours"),
    };
    PlatformLimits {
        queues: QUEUES,
        thresholds: Fact::new(STEP, THRESHOLDS),
        not_ect,
        drop_precedence: Fact::new(false, "sch_prio and sch_red have none"),
        marks_beside_precedence: Fact::new(false, "sch_prio and sch_red have none"),
        alphas: Fact::new(None, NO_POOLS),
        trims: Fact::new(None, "no qdisc trims"),
        balances: Fact::new(
            &[Balance::Ecmp],
            "ip-sysctl: fib_multipath_hash_policy 1 hashes addresses and ports",
        ),
        remarks: match form {
            LinuxForm::Switch => SWITCH_REMARKS,
            LinuxForm::Lab => LAB_REMARKS,
            LinuxForm::Bpf => BPF_REMARKS,
            LinuxForm::Host => HOST_REMARKS,
        },
    }
}
