//! The probe's packets in the simulator.

use std::time::Duration;

use gradwire_fabric::fitting;
use gradwire_fabric::topology::Fabric;
use gradwire_netsim::transports::open_loop::{self, Fates, StreamFate, Traffic};
use gradwire_protocol::job::Job;
use gradwire_protocol::units::Span;
use gradwire_transport::probe::{Passage, Passages};

use gradwire_lab::error::LabError;
use gradwire_lab::files;

/// Sends traffic from the first host of a fabric to the last; thresholds are computed for `rtt`, or
/// for the fabric's own round trip without it.
///
/// # Errors
/// [`LabError`] names the fabric and its mistake.
pub fn send(
    given: &str,
    job: &Job,
    traffic: &Traffic,
    rtt: Option<Span>,
) -> Result<Fates, LabError> {
    let fabric = files::fabric(given)?;
    fabric
        .check()
        .map_err(|error| LabError::input(given, error))?;
    let traffic = Traffic {
        source: 0,
        destination: fabric.hosts - 1,
        ..traffic.clone()
    };
    if traffic.destination == 0 {
        let message = "it has one host; the probe needs two";
        return Err(LabError::input(given, message));
    }
    check_size(&fabric, &traffic).map_err(|message| LabError::input(given, message))?;
    let mut policy = fitting::policy_of_job(job, &fabric);
    policy.rtt = rtt.unwrap_or(policy.rtt);
    Ok(open_loop::send(&fabric, &policy, &traffic))
}

fn check_size(fabric: &Fabric, traffic: &Traffic) -> Result<(), String> {
    let largest = traffic.streams.iter().map(|stream| stream.payload).max();
    match largest {
        Some(payload) if payload > fabric.mtu => Err(format!(
            "its packets carry at most {} bytes; --payload is {payload}",
            fabric.mtu
        )),
        _ => Ok(()),
    }
}

/// The fate of the streams, in the form that a real fabric's has.
pub fn passages(fates: &Fates) -> Passages {
    let delays = fates.streams.iter().flat_map(|fate| &fate.delays);
    let least = delays.min().copied().unwrap_or_default();
    let streams = fates.streams.iter();
    Passages {
        streams: streams.map(|fate| passage(fate, least)).collect(),
        ..Passages::default()
    }
}

fn passage(fate: &StreamFate, least: Span) -> Passage {
    let mut delays = fate.delays.clone();
    delays.sort_unstable();
    let above = |percent: usize| {
        let rank = (delays.len() * percent).div_ceil(100);
        Duration::from_nanos(delays[rank - 1].beyond(least).as_nanos())
    };
    Passage {
        sent: fate.sent as u32,
        received: fate.received as u32,
        marked: fate.marked as u32,
        delays: (!delays.is_empty()).then(|| (above(50), above(99))),
        ..Passage::default()
    }
}
