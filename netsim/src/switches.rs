//! How the switches of a fabric serve a transport: the policy that they execute, their memory.

use std::borrow::Cow;

use gradwire_fabric::fitting;
use gradwire_fabric::policy::{MarkRamp, Pause, QosPolicy, ServiceOrder, SwitchBuffer, TrimDepth};
use gradwire_fabric::topology::Fabric;
use gradwire_protocol::job::Job;
use gradwire_protocol::units::{ByteCount, Share, Span};

use crate::setup::{Setup, Transport};
use crate::transports::eqds;
use crate::transports::settings::REFERENCE_HEADER;

/// The policy that the switches execute for a transport.
pub fn policy(setup: &Setup) -> QosPolicy {
    let fabric = &setup.fabric;
    // References use classes of the default job, whatever the job says.
    let default = Job::default();
    let job = match setup.transport {
        Transport::Gradwire => &setup.job,
        _ => &default,
    };
    let mut policy = fitting::policy_of_job(job, fabric);
    if setup.transport != Transport::Gradwire {
        policy.trims_to = None;
    }
    let packet = u64::from(fabric.mtu + fabric.framing);
    match setup.transport {
        Transport::Gradwire
        | Transport::Dctcp
        | Transport::SlowDctcp
        | Transport::DctcpClasses
        | Transport::Pias
        | Transport::Swift => {}
        Transport::PFabric => {
            policy.order = ServiceOrder::Urgency;
            policy.queues.truncate(2);
            policy.queues[1].marks_above = None;
        }
        Transport::Ndp | Transport::Eqds => {
            let packets = match setup.transport {
                Transport::Ndp => 8,
                _ => eqds::TRIM_PACKETS,
            };
            let half = fabric.buffer.port_bytes().get() / 2;
            let depth = ByteCount::new((packets * packet - 1).min(half));
            trim_above(&mut policy, fabric, TrimDepth::Bytes(depth));
            policy.queues[1].marks_above = None;
        }
        Transport::Nscc | Transport::Rccc => {
            let round_trip = policy.rtt;
            trim_above(&mut policy, fabric, TrimDepth::Time(round_trip));
            policy.queues[1].marks_above = Some(Share::ALL);
            policy.ramp = Some(nscc_marks(round_trip));
        }
        Transport::Irn
        | Transport::IrnDcqcn
        | Transport::IrnGoBack
        | Transport::IrnNoWindow
        | Transport::SwitchMl
        | Transport::Atp
        | Transport::AtpServers => {
            policy.ramp = Some(dcqcn_marks());
        }
        Transport::Roce
        | Transport::RocePfc
        | Transport::IrnPfc
        | Transport::IrnPfcDcqcn
        | Transport::NetReduce => {
            policy.ramp = Some(dcqcn_marks());
            policy.pause = Some(Pause {
                above: ByteCount::new(48 * packet),
                below: ByteCount::new(32 * packet),
            });
        }
    }
    policy
}

/// Lets switches cut packets to their headers when a data queue is deeper than this.
fn trim_above(policy: &mut QosPolicy, fabric: &Fabric, depth: TrimDepth) {
    policy.trims_to = Some(ByteCount::new(u64::from(REFERENCE_HEADER + fabric.framing)));
    policy.trims_above = depth;
}

/// Where switches mark for NSCC and RCCC: from a fifth of a round trip on, and everything from four
/// fifths (htsim of the Ultra Ethernet Consortium).
fn nscc_marks(round_trip: Span) -> MarkRamp {
    let share = |fifths| Span::from_picos(round_trip.as_picos() / 5 * fifths);
    MarkRamp {
        from: share(1),
        to: share(4),
        share: Share::ALL,
    }
}

/// Where switches mark for DCQCN: Kmin and Kmax are 100 and 400 KB at 25 Gb/s, more at higher rates
/// (Li et al., "HPCC", SIGCOMM 2019, section 5.1); Pmax is that of HPCC's simulator. If all packets
/// above one depth were marked, every flow in a queue would be notified each 50 us, halve its rate
/// each time, and need milliseconds to recover.
fn dcqcn_marks() -> MarkRamp {
    MarkRamp {
        from: Span::from_micros(32),
        to: Span::from_micros(128),
        share: Share::new(0.2).expect("a fifth is a share"),
    }
}

/// The fabric with the memory that its switches have for a transport. The data
/// queue of references that have only one may fill a port, as in their papers.
pub(crate) fn with_memory_of(setup: &Setup) -> Cow<'_, Fabric> {
    match (setup.transport, setup.fabric.buffer) {
        (Transport::Gradwire | Transport::DctcpClasses | Transport::Pias, _)
        | (_, SwitchBuffer::PerPort(_) | SwitchBuffer::Shared { .. }) => {
            Cow::Borrowed(&setup.fabric)
        }
        (_, SwitchBuffer::Divided { bytes, .. }) => Cow::Owned(Fabric {
            buffer: SwitchBuffer::PerPort(bytes),
            ..setup.fabric.clone()
        }),
    }
}
