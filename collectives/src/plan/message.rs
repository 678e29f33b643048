//! The messages of a plan, in and out, and the gates that they wait for.

use gradwire_protocol::units::Rank;

use crate::plan::region::TensorRegion;

/// Part numbers of collectives lie below this, those of point-to-point messages from here on.
pub(crate) const PARTS: u16 = 0x8000;

/// The effect of an arriving segment on the bytes in its place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SegmentLanding {
    /// It replaces them.
    Copy,
    /// It is reduced into them.
    Reduce,
}

/// Whether the operation's loss tolerance applies to a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Reliability {
    /// It must arrive whole.
    Lossless,
    /// It goes straight to the rank that finishes the sum, or is no part of a sum: segments may be
    /// missing within the tolerance.
    Tolerant,
}

/// The values of a message, which decide how a codec encodes them where it leaves the host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum MessageForm {
    /// They stay as they are.
    Plain,
    /// They go straight to the rank that finishes the sum.
    Contribution,
    /// A finished sum, which its owner sends in the same form to all.
    Sum {
        /// How many messages are summed in it, the owner's own values among them.
        addends: u16,
    },
}

/// Number of a gate in its plan.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct GateId(pub(crate) usize);

/// A message in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct PlannedReceive {
    pub(crate) from: Rank,
    pub(crate) part: u16,
    /// Where it lands: a region of the result buffer or of the scratch.
    pub(crate) region: TensorRegion,
    pub(crate) landing: SegmentLanding,
    pub(crate) reliability: Reliability,
    /// How many ranks' values are summed in it.
    pub(crate) contributors: u16,
    /// How it may be encoded.
    pub(crate) form: MessageForm,
    /// The gate that waits for it.
    pub(crate) gate: GateId,
    /// Of the messages of the operation those with the least turn come first, if this rank can
    /// choose.
    pub(crate) turn: u16,
}

impl PlannedReceive {
    /// The values of one rank, to be added to a sum.
    pub(crate) fn contribution(from: Rank, part: u16, region: TensorRegion, gate: GateId) -> Self {
        Self {
            from,
            part,
            region,
            landing: SegmentLanding::Reduce,
            reliability: Reliability::Tolerant,
            contributors: 1,
            form: MessageForm::Plain,
            gate,
            turn: 0,
        }
    }

    /// Finished values, which replace those in the region.
    pub(crate) fn finished(from: Rank, part: u16, region: TensorRegion, gate: GateId) -> Self {
        Self {
            landing: SegmentLanding::Copy,
            ..Self::contribution(from, part, region, gate).lossless()
        }
    }

    /// The same message in the turn of its part.
    pub(crate) fn in_turn(self) -> Self {
        Self {
            turn: self.part,
            ..self
        }
    }

    /// The same message without tolerance.
    pub(crate) fn lossless(self) -> Self {
        Self {
            reliability: Reliability::Lossless,
            ..self
        }
    }

    /// The same message, which may be encoded in this form.
    pub(crate) fn in_form(self, form: MessageForm) -> Self {
        Self { form, ..self }
    }

    /// The same message with the sum of `contributors` ranks' values.
    pub(crate) fn of(self, contributors: u16) -> Self {
        Self {
            contributors,
            ..self
        }
    }
}

/// A message out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct PlannedSend {
    pub(crate) to: Rank,
    pub(crate) part: u16,
    pub(crate) region: TensorRegion,
    pub(crate) reliability: Reliability,
    /// How many ranks' values are summed in it.
    pub(crate) contributors: u16,
    /// How it may be encoded.
    pub(crate) form: MessageForm,
    /// The gate that it waits for.
    pub(crate) gate: GateId,
}

impl PlannedSend {
    /// The values of this rank, to be added to a sum.
    pub(crate) fn contribution(to: Rank, part: u16, region: TensorRegion, gate: GateId) -> Self {
        Self {
            to,
            part,
            region,
            reliability: Reliability::Tolerant,
            contributors: 1,
            form: MessageForm::Plain,
            gate,
        }
    }

    /// Values that must arrive whole, such as finished ones.
    pub(crate) fn finished(to: Rank, part: u16, region: TensorRegion, gate: GateId) -> Self {
        Self {
            reliability: Reliability::Lossless,
            ..Self::contribution(to, part, region, gate)
        }
    }

    /// The same message, which may be encoded in this form.
    pub(crate) fn in_form(self, form: MessageForm) -> Self {
        Self { form, ..self }
    }

    /// The same message with the sum of `contributors` ranks' values.
    pub(crate) fn of(self, contributors: u16) -> Self {
        Self {
            contributors,
            ..self
        }
    }
}
