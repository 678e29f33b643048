//! A job on a fabric: the round trip, the policy of the switches, and defaults fitted to the
//! fabric.
//!
//! All of this follows from the descriptions of job and fabric, without a simulation.

use std::collections::BTreeSet;

use gradwire_protocol::job::{
    GrantWindow, Job, Mtu, PacketOrder, PacketSecurity, QueueSignal, SendWindow,
};
use gradwire_protocol::priority::EarlyDrop;
use gradwire_protocol::units::{ByteCount, Span};

use crate::exchange;
use crate::policy::{Balance, QosPolicy, TrimDepth, bytes_during};
use crate::topology::{Fabric, Trimming};

/// Bytes of a control packet: a header without payload.
const CONTROL_BYTES: u32 = 64;
/// IPv6 and UDP headers, which a job's MTU includes and a fabric's does not.
const IP_AND_UDP: u32 = 48;
/// If the core carries this share of the hosts' combined rate, queues do not drop early: its ports
/// are full for moments only, and each early drop costs a round trip. In an oversubscribed core
/// early drops save time.
pub const FULL_CORE: f64 = 0.9;
/// Packets that a bandwidth-delay product has where speculation pays, at least.
const SPECULATIVE_PACKETS: u64 = 8;
/// Switches trim what waits for longer than a round trip, above which they mark, and this part of
/// one more; a quarter would not hold the bursts of direct all-reduces. A port of a tenth of the
/// rate then has a tenth of the queue, so no packet waits there for ten times as long as on other
/// paths; but queues of average rate mark before they trim.
const TRIM_PART: u64 = 2;
/// A port that marks before it drops holds this many times the depth above which it marks.
const MARK_ROOM: u64 = 2;

/// The pattern of simultaneous senders and receivers, on which some defaults depend.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SendPattern {
    /// Many ranks send to one, as in reductions to a root.
    ToRoots,
    /// Ranks send in turns, as in the other collectives.
    InTurns,
    /// Hosts send flows that no receiver expects.
    Unannounced,
}

/// The longest round trip of a full packet and a control packet, without queues.
pub fn round_trip(fabric: &Fabric) -> Span {
    let on_wire = |bytes: u32| ByteCount::new(u64::from(bytes + fabric.framing));
    fabric.base_rtt(on_wire(fabric.mtu), on_wire(CONTROL_BYTES))
}

/// The policy that a job asks of the switches of a fabric.
pub fn policy_of_job(job: &Job, fabric: &Fabric) -> QosPolicy {
    let mut policy = QosPolicy::of_job(job, round_trip(fabric));
    policy.balance = fabric.balance.unwrap_or(Balance::Ecmp);
    for queue in policy.queues.iter_mut().skip(1) {
        queue.marks_above = fabric.marks_above;
    }
    if fabric.trimming == Trimming::On {
        policy.trims_to = Some(ByteCount::new(u64::from(CONTROL_BYTES + fabric.framing)));
        policy.trims_above = TrimDepth::Time(policy.rtt + policy.rtt.divided(TRIM_PART));
    }
    policy
}

/// Whether early drops save more time than they cost on a fabric (see [`FULL_CORE`]).
pub fn early_drop(fabric: &Fabric) -> EarlyDrop {
    match exchange::core_share(fabric).get() {
        FULL_CORE.. => EarlyDrop::Off,
        _ => EarlyDrop::On,
    }
}

/// A job with its defaults fitted to the rate and round trip of a fabric; the keys in `written`
/// keep their values. The defaults of a job suit hosts whose kernel delays packets by milliseconds;
/// a simulated host has no kernel.
///
/// The unscheduled start of messages to a peer is:
/// - one packet where many ranks send to one (reductions to a root),
/// - two packets where hosts send flows unannounced; three quarters of a bandwidth-delay product if
///   switches trim, since repairs of trimmed packets wait for grants. Otherwise, where queues drop
///   early, a whole product are speculative packets instead,
/// - a whole bandwidth-delay product where ranks send in turns, as in the other collectives.
///
/// A rank grants more than its link takes if its senders have several such receivers, as workers
/// have servers, and ranks all others in a direct reduction: granted bytes then wait for their turn
/// at the sender (Homa's overcommitment, Montazeri et al., SIGCOMM 2018, section 3.4). But they may
/// all arrive at once, and then the switch's port must hold them together with unscheduled packets:
/// they are three quarters of it.
pub fn fitted(job: &Job, written: &BTreeSet<String>, fabric: &Fabric, senders: SendPattern) -> Job {
    let mut job = job.clone();
    let open = |key: &str| !written.contains(key);
    let rtt = Span::from_micros(round_trip(fabric).as_micros() + 1);
    let bdp = bytes_during(rtt, fabric.host_rate());
    let of_bdp = |times: u64, least: u64| {
        let bytes = (bdp * times / 4).max(least);
        ByteCount::new(bytes.next_multiple_of(1 << 10))
    };
    if open("security") {
        // A simulated fabric has no attacker, and the packets of references have no seal either.
        job.security = PacketSecurity::None;
    }
    if open("collectives.core") {
        job.collectives.core = Some(exchange::core_share(fabric));
    }
    if open("loss.early_drop") {
        job.loss.early_drop = early_drop(fabric);
    }
    let trims = fabric.trimming == Trimming::On;
    let transport = &mut job.transport;
    if open("transport.mtu") {
        transport.mtu = Mtu::Bytes(fabric.mtu + IP_AND_UDP);
    }
    if open("transport.window") {
        transport.window = SendWindow::Bytes(of_bdp(8, 64 << 10));
    }
    if open("transport.initial_window") {
        transport.initial_window = of_bdp(5, 16 << 10).min(transport.window.most());
    }
    if open("transport.unscheduled") {
        let packets = |packets| ByteCount::new(packets * u64::from(fabric.mtu));
        transport.unscheduled = match senders {
            SendPattern::ToRoots => packets(1),
            SendPattern::InTurns => of_bdp(4, 16 << 10),
            SendPattern::Unannounced if trims => of_bdp(3, 16 << 10),
            SendPattern::Unannounced => packets(2),
        };
    }
    if open("transport.speculative") && senders == SendPattern::Unannounced && !trims {
        transport.speculative = speculative(fabric, bdp);
    }
    if open("transport.grant_window") {
        let one = of_bdp(6, 16 << 10);
        let held = ByteCount::new(fabric.buffer.port_bytes().get() / 4 * 3);
        transport.grant_window = Some(GrantWindow::Bytes(match senders {
            SendPattern::ToRoots | SendPattern::InTurns => one.max(held),
            SendPattern::Unannounced => one,
        }));
    }
    if open("transport.spray_burst") {
        transport.spray_burst = 1;
    }
    if open("transport.entropies") {
        transport.entropies = 64;
    }
    if open("transport.order") && fabric.balance.unwrap_or(Balance::Ecmp) == Balance::Ecmp {
        transport.order = PacketOrder::Kept;
    }
    if open("transport.queues") && marks_before_it_drops(fabric, bdp) {
        transport.queues = QueueSignal::Marks;
    }
    if open("transport.gap") {
        transport.gap = gap(fabric, rtt);
    }
    if open("transport.delay_target") {
        transport.delay_target = (rtt * 4).max(Span::from_micros(10));
    }
    job
}

/// How much of a message may leave without a grant: nothing where queues do not drop early, or
/// where a bandwidth-delay product is few packets, which gain nothing over those that no queue
/// drops.
fn speculative(fabric: &Fabric, bdp: u64) -> ByteCount {
    let is_long = bdp >= SPECULATIVE_PACKETS * u64::from(fabric.mtu);
    let is_worth_it = is_long && marks_before_it_drops(fabric, bdp);
    let bytes = bdp.next_multiple_of(1 << 10);
    ByteCount::new(if is_worth_it { bytes } else { 0 })
}

/// How long a hole may be a packet that others have overtaken: by as much as a full port holds.
fn gap(fabric: &Fabric, rtt: Span) -> Span {
    let drain = fabric.host_rate().transmit_time(fabric.buffer.port_bytes());
    let gap = Span::from_micros((rtt + drain).as_micros());
    gap.max(Span::from_micros(10)).min(Span::from_millis(1))
}

/// Whether the buffer of a port is much deeper than its marking threshold, for a bandwidth-delay
/// product of `bdp` bytes.
fn marks_before_it_drops(fabric: &Fabric, bdp: u64) -> bool {
    let held = fabric.buffer.port_bytes().get();
    fabric
        .marks_above
        .is_some_and(|share| share.of(bdp) * MARK_ROOM <= held)
}
