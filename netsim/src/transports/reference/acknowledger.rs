//! A receiver that answers every packet by itself, as those of DCTCP and pFabric do.

use std::collections::BTreeMap;

use gradwire_protocol::machine::Ecn;

use super::cargo::{CargoKind, ReferenceCargo};
use super::flow_host::FlowDesk;
use super::incoming::IncomingFlow;
use crate::engine::host::{Envelope, Load};

/// The flows to a host.
#[derive(Debug, Default)]
pub(crate) struct Acknowledger {
    flows: BTreeMap<u32, IncomingFlow>,
}

impl Acknowledger {
    /// Accepts a data packet and answers it with an ACK, which repeats the packet's mark, or with a
    /// NACK if it was trimmed and the flow lacks it.
    pub(crate) fn take(
        &mut self,
        desk: &mut FlowDesk,
        envelope: &Envelope,
        cargo: &ReferenceCargo,
    ) {
        let packets = desk.settings.packets(cargo.flow_bytes);
        let flow = self.flows.entry(cargo.flow);
        let flow = flow.or_insert_with(|| IncomingFlow::new(packets));
        if envelope.load == Load::Trimmed && flow.lacks(cargo.packet) {
            let nack = ReferenceCargo {
                before: flow.before(),
                ..cargo.answer(CargoKind::Nack)
            };
            desk.outbox.answer(envelope, nack);
            return;
        }
        desk.outbox.arrived(cargo.flow, flow.take(cargo.packet));
        let marked = envelope.ecn == Ecn::Ce;
        desk.outbox.counts.marks += u64::from(marked);
        let ack = ReferenceCargo {
            marked,
            before: flow.before(),
            ..cargo.answer(CargoKind::Ack)
        };
        desk.outbox.answer(envelope, ack);
    }
}
