//! A host of a reference transport: everything except the rules of its paper.
//!
//! - A [`FlowHost`] keeps the flows that it sends and one timer per flow, gives its link answers
//!   before data, and reports flows that are acknowledged.
//! - [`FlowRules`] are the rules of a paper: which flow sends next, how a sender processes an
//!   answer, when a flow has waited too long. [`crate::transports`] lists the implementors.
//! - A [`FlowDesk`] is the part of a host that its rules may use.
//!
//! After every event of a flow the host calls [`FlowRules::line_up`], so a flow is in line exactly
//! when it may send.

use std::collections::BTreeMap;

use gradwire_protocol::units::{ByteCount, Instant};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::alarms::{Alarms, FlowAlarm};
use super::cargo::{CargoKind, ReferenceCargo};
use super::outbox::{ReferenceOutbox, Route};
use super::scoreboard::Transmission;
use crate::engine::host::{Begin, Envelope, Host, HostProgress};
use crate::results::outcome::TransportCounts;
use crate::transports::settings::ReferenceSettings;

/// A host that speaks a reference transport.
#[derive(Debug)]
pub struct FlowHost<R: FlowRules> {
    pub(crate) rules: R,
    desk: FlowDesk,
    sending: SendingFlows<R::Flow>,
    alarms: Alarms,
}

/// The part of a host that its rules may use.
#[derive(Debug)]
pub struct FlowDesk {
    pub(crate) settings: ReferenceSettings,
    /// The time of the latest call of the host.
    pub(crate) now: Instant,
    pub(crate) outbox: ReferenceOutbox,
    pub(crate) random: ChaCha8Rng,
}

/// The flows that a host sends, by number.
pub type SendingFlows<F> = BTreeMap<u32, SendingFlow<F>>;

/// A flow at its sender.
#[derive(Debug)]
pub struct SendingFlow<F> {
    pub(crate) destination: u32,
    bytes: ByteCount,
    alarm: FlowAlarm,
    /// The state that the rules keep of it.
    pub(crate) state: F,
}

/// A data packet that leaves.
#[derive(Debug)]
pub struct DataDeparture {
    pub(crate) packet: Transmission,
    /// Its path.
    pub(crate) entropy: u16,
    /// Its place in queues that serve the smallest first.
    pub(crate) urgency: u32,
    /// Up to how many packets PULLs may allow in all, as far as the sender asks for them.
    pub(crate) pulls: u32,
    /// When the flow's timer must come due, if earlier than it is set.
    pub(crate) alarm: Option<Instant>,
}

/// The rules of a transport, from its paper.
pub trait FlowRules {
    /// The state of a flow at its sender.
    type Flow: std::fmt::Debug;

    /// A flow begins at this host.
    fn begin(&mut self, desk: &mut FlowDesk, begin: &Begin) -> Self::Flow;

    /// A packet of a flow's sender, data or a probe, has arrived.
    fn at_receiver(&mut self, desk: &mut FlowDesk, envelope: &Envelope, cargo: &ReferenceCargo);

    /// A flow from this host that may go on since the packet that has just arrived.
    fn released(&mut self) -> Option<u32> {
        None
    }

    /// An answer of a flow's receiver has arrived.
    fn at_sender(&mut self, desk: &mut FlowDesk, flow: &mut Self::Flow, cargo: &ReferenceCargo);

    /// Whether the sender knows that the receiver has everything.
    fn is_acknowledged(flow: &Self::Flow) -> bool;

    /// Puts a flow in line when it may send, unless it is in line already.
    fn line_up(&mut self, now: Instant, number: u32, flow: &mut Self::Flow);

    /// The flow whose turn it is.
    fn next_in_line(&mut self, now: Instant) -> Option<u32>;

    /// Sends the next packet of the flow whose turn it is; `None`: it may not send any more.
    fn send(&mut self, desk: &mut FlowDesk, flow: &mut Self::Flow) -> Option<DataDeparture>;

    /// A flow's timer has come due, perhaps too early. Returns when it is to come due again.
    fn time_out(&mut self, now: Instant, number: u32, flow: &mut Self::Flow) -> Option<Instant>;

    /// A packet that leaves after answers and before data, if there is one.
    fn transmit_ahead(
        &mut self,
        _desk: &mut FlowDesk,
        _flows: &SendingFlows<Self::Flow>,
        _cargo: &mut ReferenceCargo,
    ) -> Option<Envelope> {
        None
    }

    /// When the next event of the rules is due that no timer of a flow covers.
    fn wakes_at(&self) -> Option<Instant> {
        None
    }
}

impl<R: FlowRules> FlowHost<R> {
    /// A host without flows.
    pub(crate) fn new(host: u32, settings: &ReferenceSettings, rules: R) -> Self {
        Self {
            rules,
            desk: FlowDesk {
                settings: *settings,
                now: Instant::START,
                outbox: ReferenceOutbox::new(host, *settings),
                random: ChaCha8Rng::seed_from_u64(settings.seed ^ u64::from(host) << 32),
            },
            sending: BTreeMap::new(),
            alarms: Alarms::default(),
        }
    }

    /// The next answer, in the order of [`Host::transmit`]: answers leave before data.
    pub(crate) fn transmit_answer(
        &mut self,
        now: Instant,
        cargo: &mut ReferenceCargo,
    ) -> Option<Envelope> {
        self.desk.now = now;
        self.desk.outbox.transmit(cargo)
    }

    /// The time of the latest call.
    pub(crate) const fn now(&self) -> Instant {
        self.desk.now
    }

    fn take_answer(&mut self, cargo: &ReferenceCargo) {
        let number = cargo.flow;
        let Some(flow) = self.sending.get_mut(&number) else {
            return;
        };
        self.rules.at_sender(&mut self.desk, &mut flow.state, cargo);
        self.rules.line_up(self.desk.now, number, &mut flow.state);
        if R::is_acknowledged(&flow.state) {
            self.sending.remove(&number);
            self.desk
                .outbox
                .report(HostProgress::Acknowledged { flow: number });
        }
    }

    fn time_out(&mut self, number: u32) {
        let Some(flow) = self.sending.get_mut(&number) else {
            return;
        };
        flow.alarm = None;
        let now = self.desk.now;
        let again = self.rules.time_out(now, number, &mut flow.state);
        self.rules.line_up(now, number, &mut flow.state);
        if let Some(at) = again {
            self.alarms.no_later_than(at, number, &mut flow.alarm);
        }
    }

    fn send(&mut self, number: u32, cargo: &mut ReferenceCargo) -> Option<Envelope> {
        let flow = self.sending.get_mut(&number)?;
        let departure = self.rules.send(&mut self.desk, &mut flow.state)?;
        let now = self.desk.now;
        self.rules.line_up(now, number, &mut flow.state);
        if let Some(at) = departure.alarm {
            self.alarms.no_later_than(at, number, &mut flow.alarm);
        }
        let Transmission {
            packet, attempt, ..
        } = departure.packet;
        self.desk.outbox.count(attempt);
        *cargo = ReferenceCargo::data(number, flow.bytes, now, departure.packet);
        (cargo.entropy, cargo.pulls) = (departure.entropy, departure.pulls);
        let route = Route {
            destination: flow.destination,
            entropy: departure.entropy,
            urgency: departure.urgency,
        };
        Some(self.desk.outbox.data(route, flow.bytes, packet))
    }
}

impl<R: FlowRules> Host for FlowHost<R> {
    type Cargo = ReferenceCargo;

    fn begin(&mut self, now: Instant, begin: Begin) {
        self.desk.now = now;
        let mut flow = SendingFlow {
            destination: begin.destination,
            bytes: begin.bytes,
            alarm: None,
            state: self.rules.begin(&mut self.desk, &begin),
        };
        self.rules.line_up(now, begin.flow, &mut flow.state);
        self.sending.insert(begin.flow, flow);
    }

    fn receive(&mut self, now: Instant, envelope: &Envelope, cargo: &mut ReferenceCargo) {
        self.desk.now = now;
        match cargo.kind {
            CargoKind::Data | CargoKind::Probe => {
                self.rules.at_receiver(&mut self.desk, envelope, cargo);
                if let Some(number) = self.rules.released()
                    && let Some(flow) = self.sending.get_mut(&number)
                {
                    self.rules.line_up(now, number, &mut flow.state);
                }
            }
            CargoKind::Ack
            | CargoKind::Nack
            | CargoKind::Pull
            | CargoKind::Congestion
            | CargoKind::Alive => self.take_answer(cargo),
        }
    }

    fn wake(&mut self, now: Instant) {
        self.desk.now = now;
        while let Some(number) = {
            let alarm = |number| Some(self.sending.get(&number)?.alarm);
            self.alarms.take_due(now, alarm)
        } {
            self.time_out(number);
        }
    }

    fn wakes_at(&self) -> Option<Instant> {
        // A packet that is already due waits for the link, not for the time.
        let own = self.rules.wakes_at().filter(|&at| at > self.desk.now);
        own.into_iter().chain(self.alarms.next()).min()
    }

    fn transmit(&mut self, now: Instant, cargo: &mut ReferenceCargo) -> Option<Envelope> {
        self.desk.now = now;
        let ahead = self.desk.outbox.transmit(cargo).or_else(|| {
            self.rules
                .transmit_ahead(&mut self.desk, &self.sending, cargo)
        });
        if ahead.is_some() {
            return ahead;
        }
        while let Some(number) = self.rules.next_in_line(now) {
            if let Some(envelope) = self.send(number, cargo) {
                return Some(envelope);
            }
        }
        None
    }

    fn progress(&mut self) -> Option<HostProgress> {
        self.desk.outbox.progress()
    }

    fn counts(&self) -> TransportCounts {
        self.desk.outbox.counts
    }
}
