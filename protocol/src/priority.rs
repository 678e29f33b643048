//! Tags every segment: its class, its DSCP and ECN bits, and whether it may be lost. No other file
//! decides about tags; [`Policy::lossy`] and [`Policy::lossless`] make those of a message.
//!
//! The next forward pass needs the front layers first, so they get the higher classes. Segments of
//! large magnitude and the layers at the back are protected: they are sent as ECT, so that a
//! RED/ECN queue marks them, and they are repaired whatever the tolerance. The others are sent as
//! not-ECT, and the same queue drops them (Wang et al., DLCP, arXiv 2008.08445; front layers
//! tolerate more loss than back layers, small gradients more than large ones).
//!
//! A tensor of which the next forward pass needs everything, such as the parameters that a server
//! sends back, is a front layer, and so is one without layers. A tensor that can wait, such as the
//! symbols by which a server is rebuilt, is the last layer: its caller says so.
//!
//! Control packets have class 0 and a DSCP of their own, so that no gradient can starve them. Only
//! a PROBE has the class of its message's data: data that has not arrived before it is lost, not
//! late.

mod need;
mod protection;
mod turn;

use std::ops::Range;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use strum::{EnumString, IntoStaticStr, VariantNames};

use crate::bitmap::Bitmap;
use crate::machine::Ecn;
use crate::parity::{PARITY_WINDOW, ParityLayout, ParityTerms};
use crate::units::{Class, Dscp, Layer, Magnitude, Share};

pub(crate) use self::protection::STRETCH_MAX;

pub use self::need::{RepairNeed, TieBreaker};
pub use self::turn::{SendAttempt, SendTurn, Urgency, UrgencyUnit};

/// The class of control packets.
pub const CONTROL: Class = Class(0);

/// The last segments of a lossy message, one in this many, are sent so that no queue drops them
/// early, although they may be missing: no packet follows that could show soon that they are lost.
const TAIL_PART: u32 = 8;

/// The part of a job that decides class, DSCP and protection.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Policy {
    /// DSCP of each class; index 0 is the control class, so there are at least two.
    pub dscps: Vec<Dscp>,
    /// DSCP of each data class's droppable packets, for switches that cannot tell them by ECN;
    /// empty: the one of their class.
    pub droppable_dscps: Vec<Dscp>,
    /// Share of a lossy message's segments, those of largest magnitude, that is protected.
    pub protected_share: Share,
    /// Share of the layers, counted from the back, that is protected.
    pub protected_back_layers: Share,
    /// Share of a message that may be missing if there are [`Policy::layer_tolerances`] and the
    /// message's layers are not known.
    pub tolerance: Share,
    /// Tolerances of as many equal groups of the layers, front layers first; may be empty.
    pub layer_tolerances: Vec<Share>,
    /// The order in which gradients leave.
    pub order: SendOrder,
    /// The class of packets without a layer.
    pub untagged: UntaggedTraffic,
    /// Whether queues may drop segments before they are full.
    pub early_drop: EarlyDrop,
}

/// Whether queues drop segments that may be missing before they are full.
#[derive(
    Clone,
    Copy,
    Debug,
    Deserialize,
    Eq,
    PartialEq,
    Serialize,
    EnumString,
    IntoStaticStr,
    VariantNames,
)]
#[strum(serialize_all = "kebab-case")]
pub enum EarlyDrop {
    /// They drop them where they mark others.
    On,
    /// They mark all.
    Off,
}

/// The class of packets without a layer: those of other programs, which have no DSCP of the job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UntaggedTraffic {
    /// In the last class, with the job's last layers.
    Shares,
    /// In the last class, which the job's layers leave to them.
    Below,
    /// In the last class, which the job's layers leave to them, and which gets this share of a link
    /// whatever the layers send.
    Weighted(Share),
}

/// The order in which gradients leave.
#[derive(Clone, Copy, Debug, Eq, PartialEq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum SendOrder {
    /// Front layers first, and in higher classes.
    Layers,
    /// In order of arrival, all in one class. Tolerance and protection still depend on layers.
    Arrival,
}

impl Policy {
    /// The class of a layer: the layers are cut into as many equal groups as there are data
    /// classes for them, front layers first. In order of arrival all have the highest one.
    pub fn class_of(&self, layer: Layer, layer_count: u16) -> Class {
        if layer == Layer::UNTAGGED {
            return Class((self.dscps.len() - 1) as u8);
        }
        if self.order == SendOrder::Arrival {
            return Class(1);
        }
        Class(1 + group_of(layer, layer_count, self.layer_classes()) as u8)
    }

    /// How much of a message with these layers may be missing: at most `most`, and if the job has
    /// tolerances of layers, no more than the strictest of its layers tolerates.
    pub fn tolerance(
        &self,
        most: Share,
        layers: impl IntoIterator<Item = Layer>,
        layer_count: u16,
    ) -> Share {
        let groups = self.layer_tolerances.len();
        if groups == 0 {
            return most;
        }
        let layers = layers.into_iter().filter(|_| layer_count > 0);
        let tolerances =
            layers.map(|layer| self.layer_tolerances[group_of(layer, layer_count, groups)]);
        tolerances.min().unwrap_or(self.tolerance).min(most)
    }

    /// The DSCP that packets of `class` carry.
    ///
    /// # Panics
    /// When the policy has no such class.
    pub fn dscp_of(&self, class: Class, ecn: Ecn) -> Dscp {
        let class = usize::from(class.0);
        let droppable = class.checked_sub(1).filter(|_| ecn == Ecn::NotEct);
        let droppable = droppable.and_then(|data| self.droppable_dscps.get(data));
        droppable.copied().unwrap_or(self.dscps[class])
    }

    /// How urgent an operation with these layers, of `layer_count`, is: as urgent as the first of
    /// them, or the first of their class. `None` when layers are not known.
    pub fn urgency(
        &self,
        layers: impl IntoIterator<Item = Layer>,
        layer_count: u16,
        unit: UrgencyUnit,
    ) -> Option<Urgency> {
        let first = layers.into_iter().min().filter(|_| layer_count > 0)?;
        Some(self.urgency_of(match unit {
            UrgencyUnit::Layer => first,
            UrgencyUnit::Class => self.first_of_class(first, layer_count),
        }))
    }

    /// The first layer of the class of a layer.
    fn first_of_class(&self, layer: Layer, layer_count: u16) -> Layer {
        if layer == Layer::UNTAGGED {
            return layer;
        }
        let groups = self.layer_classes();
        let group = group_of(layer, layer_count, groups);
        Layer((group * usize::from(layer_count)).div_ceil(groups) as u16)
    }

    /// How many classes the layers have.
    fn layer_classes(&self) -> usize {
        let data_classes = self.dscps.len() - 1;
        match self.untagged {
            UntaggedTraffic::Shares => data_classes,
            UntaggedTraffic::Below | UntaggedTraffic::Weighted(_) => data_classes - 1,
        }
    }

    fn urgency_of(&self, layer: Layer) -> Urgency {
        match self.order {
            SendOrder::Arrival if layer != Layer::UNTAGGED => Urgency::default(),
            SendOrder::Arrival | SendOrder::Layers => Urgency::of(layer),
        }
    }

    fn is_back_layer(&self, layer: Layer, layer_count: u16) -> bool {
        if layer_count == 0 {
            return false;
        }
        let protected = self
            .protected_back_layers
            .of_rounded_up(u64::from(layer_count));
        u64::from(layer.0) + protected >= u64::from(layer_count)
    }

    /// Tags for a message whose segments may be lost.
    ///
    /// `spans` holds (first segment, layer) in ascending order of segments, `magnitudes` one value
    /// per segment, or empty when they are not known.
    pub fn lossy(
        &self,
        shape: MessageShape,
        spans: &[(u32, Layer)],
        magnitudes: Vec<Magnitude>,
    ) -> SegmentTags {
        let mut tags = self.lossless(shape, spans);
        let mut protected = Bitmap::new(shape.segments);
        for segment in 0..shape.segments {
            if self.is_back_layer(tags.layer(segment), shape.layer_count) {
                protected.insert(segment);
            }
        }
        if magnitudes.len() == shape.segments as usize {
            protection::protect_largest(self.protected_share, &magnitudes, &mut protected);
            tags.magnitudes = magnitudes;
        }
        tags.protected = Some(protected);
        tags.arrange(self, shape);
        tags
    }

    /// Tags for a message that must arrive whole.
    pub fn lossless(&self, shape: MessageShape, spans: &[(u32, Layer)]) -> SegmentTags {
        let layers = spans.iter().map(|&(_, layer)| layer);
        let mut tags = SegmentTags {
            urgency: self.urgency_of(layers.min().unwrap_or(Layer(0))),
            layer_count: shape.layer_count,
            spans: SmallVec::from_slice(spans),
            magnitudes: Vec::new(),
            protected: None,
            order: None,
            lanes: SmallVec::new(),
            parity: None,
        };
        tags.arrange(self, shape);
        tags
    }
}

/// Which of `groups` a layer belongs to, when the layers are cut into groups of equal count.
fn group_of(layer: Layer, layer_count: u16, groups: usize) -> usize {
    let layers = usize::from(layer_count.max(1));
    usize::from(layer.0).min(layers - 1) * groups / layers
}

/// The size of a message and of its model.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MessageShape {
    /// Segments of the message.
    pub segments: u32,
    /// Layers of the model; 0 when the layers are not known.
    pub layer_count: u16,
}

/// A stretch of the sending order whose segments have the same class and protection.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SendLane {
    /// Position in the sending order at which the lane ends.
    pub end: u32,
    /// Its traffic class.
    pub class: Class,
    /// ECT when its segments are protected, not-ECT when they may be dropped.
    pub ecn: Ecn,
}

/// The segments that parity covers: those that must arrive, from the first one on.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct ParityCoverage {
    layout: ParityLayout,
    first: u32,
}

/// Layer, magnitude, class, protection and parity of every segment of one message; by default of
/// none.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct SegmentTags {
    urgency: Urgency,
    layer_count: u16,
    spans: SmallVec<[(u32, Layer); 1]>,
    magnitudes: Vec<Magnitude>,
    protected: Option<Bitmap>,
    order: Option<Vec<u32>>,
    lanes: SmallVec<[SendLane; 2]>,
    parity: Option<ParityCoverage>,
}

impl SegmentTags {
    /// The layer of a segment; layer 0 when layers are not known.
    pub fn layer(&self, segment: u32) -> Layer {
        let after = self.spans.partition_point(|&(first, _)| first <= segment);
        after
            .checked_sub(1)
            .map_or(Layer(0), |index| self.spans[index].1)
    }

    /// Whether the segments from `first` to `last` have the same layer, magnitude, protection and
    /// parity, as far as is known without a look at each.
    pub(crate) fn are_equal(&self, first: u32, last: u32) -> bool {
        let span = |segment| self.spans.partition_point(|&(start, _)| start <= segment);
        let is_plain = self.magnitudes.is_empty() && self.protected.is_none();
        is_plain && self.parity.is_none() && span(first) == span(last)
    }

    /// The magnitude of a segment; 0 when it is not known.
    pub fn magnitude(&self, segment: u32) -> Magnitude {
        self.magnitudes
            .get(segment as usize)
            .copied()
            .unwrap_or_default()
    }

    /// How much the message needs a lost segment.
    pub fn need(&self, lot: TieBreaker, segment: u32) -> RepairNeed {
        RepairNeed::unknown(lot, segment).with(self.magnitude(segment))
    }

    /// Whether a segment must arrive whatever the tolerance. All segments of a lossless message
    /// must.
    pub fn is_protected(&self, segment: u32) -> bool {
        self.protected
            .as_ref()
            .is_none_or(|protected| protected.has(segment))
    }

    /// How many segments of the message are protected.
    pub fn protected_segments(&self, segments: u32) -> u32 {
        self.protected.as_ref().map_or(segments, Bitmap::ones)
    }

    /// Has parity follow the message, whose last `last` of `segments` segments are yet to leave. If
    /// the segments that must arrive are not the last ones to leave, the message is covered whole
    /// or not at all.
    pub(crate) fn cover(&mut self, terms: ParityTerms, segments: u32, last: u32) {
        let last = last.min(PARITY_WINDOW);
        let protected = self.protected_segments(segments);
        let is_plain = self.order.is_none() && protected == segments;
        if is_plain || last == segments {
            let layout = ParityLayout::choose(terms, protected.min(last));
            self.parity = layout.map(|layout| ParityCoverage {
                layout: layout.within_groups(last),
                first: segments - last,
            });
        }
    }

    /// The layout of the message's parity, if there is any.
    pub(crate) fn parity(&self) -> Option<ParityLayout> {
        self.parity.map(|parity| parity.layout)
    }

    /// The layout of the message's parity, if it covers this segment.
    #[inline]
    pub(crate) fn parity_of(&self, segment: u32) -> Option<ParityLayout> {
        let parity = self.parity?;
        let is_covered = segment >= parity.first && self.is_protected(segment);
        is_covered.then_some(parity.layout)
    }

    /// The segment at a position of the sending order.
    pub fn at(&self, position: u32) -> u32 {
        self.order
            .as_ref()
            .map_or(position, |order| order[position as usize])
    }

    /// The segments at the first of these positions of the sending order, as many as follow each
    /// other.
    pub(crate) fn stretch(&self, positions: Range<u32>) -> Range<u32> {
        let Some(order) = &self.order else {
            return positions;
        };
        let order = &order[positions.start as usize..positions.end as usize];
        let breaks = order.windows(2).position(|pair| pair[1] != pair[0] + 1);
        let count = breaks.map_or(order.len(), |at| at + 1);
        order[0]..order[0] + count as u32
    }

    /// The lanes of the sending order, first to last.
    pub fn lanes(&self) -> &[SendLane] {
        &self.lanes
    }

    /// The same tags in a message of an operation that is this urgent. If that is not known, a
    /// message is as urgent as its own layers.
    #[must_use]
    pub fn with_urgency(self, urgency: Option<Urgency>) -> Self {
        let urgency = urgency.unwrap_or(self.urgency);
        Self { urgency, ..self }
    }

    /// The turn of the message's segments.
    pub fn turn(&self, attempt: SendAttempt) -> SendTurn {
        SendTurn::Segments(self.urgency, attempt)
    }

    /// The class and ECN bits of one segment.
    pub fn class_and_ecn(&self, policy: &Policy, segment: u32) -> (Class, Ecn) {
        let ecn = match policy.early_drop {
            EarlyDrop::On if !self.is_protected(segment) => Ecn::NotEct,
            EarlyDrop::On | EarlyDrop::Off => Ecn::Ect,
        };
        (policy.class_of(self.layer(segment), self.layer_count), ecn)
    }

    /// The class and ECN bits of a repair: no queue may drop it early a second time.
    pub fn class_and_ecn_again(&self, policy: &Policy, segment: u32) -> (Class, Ecn) {
        (self.class_and_ecn(policy, segment).0, Ecn::Ect)
    }

    /// Sorts the segments by class, protected ones first, so that runs of equal packets are long.
    fn arrange(&mut self, policy: &Policy, shape: MessageShape) {
        let one_lane = self.protected.is_none() && self.spans.len() <= 1;
        let mut lanes = SmallVec::new();
        if one_lane {
            let (class, ecn) = self.class_and_ecn(policy, 0);
            lanes.push(SendLane {
                end: shape.segments,
                class,
                ecn,
            });
        } else {
            let key = |segment| {
                let (class, ecn) = self.class_and_ecn(policy, segment);
                (class, ecn == Ecn::NotEct)
            };
            let keys: Vec<(Class, bool)> = (0..shape.segments).map(key).collect();
            let mut kinds: SmallVec<[(Class, bool); 8]> = SmallVec::new();
            for &key in &keys {
                if !kinds.contains(&key) {
                    kinds.push(key);
                }
            }
            kinds.sort_unstable();
            let mut order = Vec::with_capacity(keys.len());
            for kind in kinds {
                let of_kind = (0..shape.segments).filter(|&at| keys[at as usize] == kind);
                order.extend(of_kind);
                let ecn = if kind.1 { Ecn::NotEct } else { Ecn::Ect };
                lanes.push(SendLane {
                    end: order.len() as u32,
                    class: kind.0,
                    ecn,
                });
            }
            self.order = Some(order);
        }
        split_tail(&mut lanes, shape.segments.div_ceil(TAIL_PART));
        self.lanes = lanes;
    }
}

/// Makes the last `tail` segments of a droppable last lane a lane that no queue drops.
fn split_tail(lanes: &mut SmallVec<[SendLane; 2]>, tail: u32) {
    let Some(last) = lanes.pop() else {
        return;
    };
    let start = lanes.last().map_or(0, |lane| lane.end);
    let split = last.end.saturating_sub(tail).max(start);
    if last.ecn == Ecn::NotEct && split > start {
        lanes.push(SendLane { end: split, ..last });
    }
    let ecn = Ecn::Ect;
    lanes.push(SendLane { ecn, ..last });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{MessageId, Rank};

    fn policy() -> Policy {
        let share = |value| Share::new(value).expect("a share");
        Policy {
            dscps: [40, 34, 26, 18].map(Dscp).to_vec(),
            droppable_dscps: Vec::new(),
            protected_share: share(0.25),
            protected_back_layers: share(0.1),
            tolerance: share(0.05),
            layer_tolerances: Vec::new(),
            order: SendOrder::Layers,
            untagged: UntaggedTraffic::Shares,
            early_drop: EarlyDrop::On,
        }
    }

    #[test]
    fn a_message_tolerates_as_much_as_its_strictest_layer() {
        let share = |value| Share::new(value).expect("a share");
        let mut policy = policy();
        let layers = |layers: &[u16]| layers.iter().map(|&layer| Layer(layer)).collect::<Vec<_>>();
        assert_eq!(policy.tolerance(share(0.3), layers(&[9]), 9), share(0.3));
        policy.layer_tolerances = [0.1, 0.02, 0.0].map(share).to_vec();
        let of = |numbers: &[u16]| policy.tolerance(share(0.3), layers(numbers), 9);
        let each: Vec<Share> = (0..9).map(|layer| of(&[layer])).collect();
        let [first, second, third] = [0.1, 0.02, 0.0].map(|value| [share(value); 3]);
        assert_eq!(each, [first, second, third].concat());
        assert_eq!(of(&[0, 2, 4]), share(0.02));
        assert_eq!(
            of(&[u16::MAX]),
            share(0.0),
            "a layer that is not there is the last"
        );
        assert_eq!(of(&[]), share(0.05), "layers that are not known");
        let unknown = policy.tolerance(share(0.3), layers(&[0]), 0);
        assert_eq!(unknown, share(0.05));
        assert_eq!(policy.tolerance(share(0.01), layers(&[0]), 9), share(0.01));
    }

    #[test]
    fn droppable_packets_take_the_second_dscp() {
        let mut policy = policy();
        assert_eq!(policy.dscp_of(Class(2), Ecn::NotEct), Dscp(26));
        policy.droppable_dscps = [38, 30, 22].map(Dscp).to_vec();
        assert_eq!(policy.dscp_of(Class(2), Ecn::NotEct), Dscp(30));
        assert_eq!(policy.dscp_of(Class(2), Ecn::Ect), Dscp(26));
        assert_eq!(policy.dscp_of(CONTROL, Ecn::NotEct), Dscp(40));
    }

    #[test]
    fn front_layers_have_higher_classes() {
        let classes: Vec<u8> = (0..9)
            .map(|layer| policy().class_of(Layer(layer), 9).0)
            .collect();
        assert_eq!(classes, [1, 1, 1, 2, 2, 2, 3, 3, 3]);
    }

    #[test]
    fn layers_may_leave_the_last_class_to_others() {
        let below = Policy {
            untagged: UntaggedTraffic::Below,
            ..policy()
        };
        let of = |policy: &Policy, layer| policy.class_of(layer, 4).0;
        let classes = [0, 1, 2, 3].map(|layer| of(&below, Layer(layer)));
        assert_eq!(classes, [1, 1, 2, 2]);
        let weighted = Policy {
            untagged: UntaggedTraffic::Weighted(Share::ALL),
            ..policy()
        };
        assert_eq!(
            [0, 1, 2, 3].map(|layer| of(&weighted, Layer(layer))),
            classes
        );
        for policy in [below, weighted, policy()] {
            assert_eq!(of(&policy, Layer::UNTAGGED), 3);
        }
    }

    #[test]
    fn messages_without_layers_have_the_highest_class_of_data() {
        let class = |layer_count, spans: &[(u32, Layer)]| {
            let shape = MessageShape {
                segments: 2,
                layer_count,
            };
            let tags = policy().lossless(shape, spans);
            tags.class_and_ecn(&policy(), 1).0
        };
        let last = policy().dscps.len() as u8 - 1;
        assert_eq!(class(0, &[]), Class(1));
        assert_eq!(class(64, &[(0, Layer(0))]), Class(1));
        assert_eq!(class(64, &[(0, Layer(63))]), Class(last));
    }

    #[test]
    fn layers_of_a_class_are_equally_urgent_where_classes_tell() {
        for layer_count in [1, 7, 10, 74, 300] {
            for layer in 0..layer_count {
                let urgency = policy().urgency([Layer(layer)], layer_count, UrgencyUnit::Class);
                let class = policy().class_of(Layer(layer), layer_count);
                let of_class = |&other: &u16| policy().class_of(Layer(other), layer_count) == class;
                let first = (0..layer_count).find(of_class).map(Layer);
                assert_eq!(urgency, first.map(Urgency::of), "{layer} of {layer_count}");
            }
        }
    }

    #[test]
    fn in_arrival_order_layers_decide_protection_only() {
        let arrival = Policy {
            order: SendOrder::Arrival,
            ..policy()
        };
        let (front, back) = ([Layer(7), Layer(2)], [Layer(9)]);
        let each = UrgencyUnit::Layer;
        let urgency = policy().urgency(front, 10, each);
        assert_eq!(urgency, Some(Urgency::of(Layer(2))));
        let [front_first, back_first] = [
            arrival.urgency(front, 10, each),
            arrival.urgency(back, 10, each),
        ];
        assert_eq!(front_first, back_first);
        assert_eq!(arrival.urgency(front, 0, each), None, "no layers are known");
        let shape = MessageShape {
            segments: 8,
            layer_count: 10,
        };
        let tags = arrival.lossy(shape, &[(0, Layer(0)), (6, Layer(9))], Vec::new());
        let (first, last) = (
            tags.class_and_ecn(&arrival, 0),
            tags.class_and_ecn(&arrival, 7),
        );
        assert_eq!(first, (Class(1), Ecn::NotEct));
        assert_eq!(last, (Class(1), Ecn::Ect));
        let others = arrival.lossless(shape, &[(0, Layer(9))]);
        assert_eq!(
            tags.turn(SendAttempt::First),
            others.turn(SendAttempt::First)
        );
    }

    #[test]
    fn repairs_precede_what_is_as_urgent_and_nothing_that_is_more_urgent() {
        let [front, back] = [Layer(0), Layer(9)].map(Urgency::of);
        let mut turns = vec![
            SendTurn::Parity,
            SendTurn::Segments(back, SendAttempt::First),
            SendTurn::Segments(back, SendAttempt::Again),
            SendTurn::Segments(front, SendAttempt::First),
            SendTurn::Segments(front, SendAttempt::Again),
        ];
        turns.sort_unstable();
        let expected = [
            SendTurn::Segments(front, SendAttempt::Again),
            SendTurn::Segments(front, SendAttempt::First),
            SendTurn::Segments(back, SendAttempt::Again),
            SendTurn::Segments(back, SendAttempt::First),
            SendTurn::Parity,
        ];
        assert_eq!(turns, expected);
    }

    #[test]
    fn the_largest_segments_and_the_back_layers_are_protected() {
        let shape = MessageShape {
            segments: 8,
            layer_count: 10,
        };
        let spans = [(0, Layer(0)), (6, Layer(9))];
        let magnitudes = [1, 9, 2, 8, 3, 4, 1, 1].map(Magnitude).to_vec();
        let tags = policy().lossy(shape, &spans, magnitudes);
        let protected: Vec<u32> = (0..8)
            .filter(|&segment| tags.is_protected(segment))
            .collect();
        assert_eq!(protected, [1, 3, 6, 7]);
        assert_eq!(tags.protected_segments(8), 4);
    }

    #[test]
    fn larger_magnitudes_are_needed_more() {
        let shape = MessageShape {
            segments: 3,
            layer_count: 0,
        };
        let lot = TieBreaker::of(Rank(1), MessageId(7));
        let need = |magnitudes: &[u8], segment| {
            let magnitudes = magnitudes.iter().map(|&value| Magnitude(value)).collect();
            let tags = policy().lossy(shape, &[], magnitudes);
            tags.need(lot, segment)
        };
        assert!(need(&[5, 9, 5], 1) > need(&[5, 9, 5], 0).max(need(&[5, 9, 5], 2)));
        for segment in 0..3 {
            assert_eq!(need(&[0, 0, 0], segment), RepairNeed::unknown(lot, segment));
            assert_eq!(need(&[], segment), RepairNeed::unknown(lot, segment));
        }
    }

    #[test]
    fn all_segments_stay_missing_equally_often() {
        let (segments, chosen, messages) = (50_u32, 5, 2000_u32);
        let mut times = vec![0_u32; segments as usize];
        for message in 0..messages {
            let lot = TieBreaker::of(Rank((message % 4) as u16), MessageId(message / 4));
            let mut order: Vec<u32> = (0..segments).collect();
            order.sort_by_key(|&segment| RepairNeed::unknown(lot, segment));
            for &segment in &order[..chosen] {
                times[segment as usize] += 1;
            }
        }
        // 200 each on average, with a deviation of 13.4: five deviations either way.
        let bounds = 133..=267;
        assert!(
            times.iter().all(|count| bounds.contains(count)),
            "{times:?}"
        );
    }

    #[test]
    fn the_sending_order_has_every_segment_once() {
        let shape = MessageShape {
            segments: 40,
            layer_count: 9,
        };
        let spans = [(0, Layer(8)), (10, Layer(0)), (20, Layer(4))];
        let magnitudes = (0..40_u32).map(|n| Magnitude((n * 7 % 40) as u8)).collect();
        let tags = policy().lossy(shape, &spans, magnitudes);
        let mut visited = Bitmap::new(40);
        let mut start = 0;
        for lane in tags.lanes() {
            for position in start..lane.end {
                let segment = tags.at(position);
                let follows = |&at: &u32| tags.at(at) == segment + (at - position);
                let count = (position..lane.end).take_while(follows).count() as u32;
                let stretch = tags.stretch(position..lane.end);
                assert_eq!(stretch, segment..segment + count);
                assert!(visited.insert(segment));
                let (class, ecn) = tags.class_and_ecn(&policy(), segment);
                let of_tail = lane.end == 40 && lane.ecn == Ecn::Ect;
                assert_eq!(class, lane.class);
                assert!(ecn == lane.ecn || of_tail);
            }
            start = lane.end;
        }
        assert_eq!(visited.zeros(), 0);
        assert!(tags.lanes().is_sorted_by_key(|lane| lane.class));
    }

    #[test]
    fn no_queue_drops_the_tail_of_a_message() {
        let shape = MessageShape {
            segments: 80,
            layer_count: 0,
        };
        let tags = policy().lossy(shape, &[], Vec::new());
        let ends: Vec<(u32, Ecn)> = (tags.lanes().iter())
            .map(|lane| (lane.end, lane.ecn))
            .collect();
        assert_eq!(ends, [(70, Ecn::NotEct), (80, Ecn::Ect)]);
        assert_eq!(tags.protected_segments(80), 0);
        let one = MessageShape {
            segments: 1,
            layer_count: 0,
        };
        let tags = policy().lossy(one, &[], Vec::new());
        assert_eq!(tags.lanes().len(), 1);
    }

    #[test]
    fn a_lossless_message_is_protected_throughout() {
        let tags = policy().lossless(
            MessageShape {
                segments: 3,
                layer_count: 0,
            },
            &[],
        );
        assert!((0..3).all(|segment| tags.is_protected(segment)));
        assert_eq!(
            tags.lanes(),
            [SendLane {
                end: 3,
                class: Class(1),
                ecn: Ecn::Ect
            }]
        );
    }
}
