//! How peers are reached, and the state of a rank that all its peers share.
//!
//! Ranks of other hosts are reached by packets over a network. Ranks of this host may be reached
//! through memory, where packets are larger and never lost. The driver knows which ranks those are,
//! and carries the packets.

use serde::{Deserialize, Serialize};

use crate::budget::Ledger;
use crate::grants::Grants;
use crate::job::SendWindow;
use crate::machine::RUN_SEGMENTS_MAX;
use crate::parity::ParityRule;
use crate::receiver::RankResources;
use crate::rtt::Rtt;
use crate::sender::Sender;
use crate::settings::{EndpointLimits, EndpointSettings};
use crate::units::{ByteCount, Instant, MessageId, PathNumber, Rank, Span};

/// A long round trip over the time that parity waits for a late segment.
const ROUND_TRIP_PER_HOLD: u64 = 32;

/// The round trip makes no gap longer than this: a sample of many seconds shows a host that stood
/// still or a clock that jumped, and says nothing about queues.
pub(crate) const VARIED_GAP_MAX: Span = Span::from_millis(1_000);
/// Runs in a window of memory, so that one is read while the next is written.
const RUNS_PER_WINDOW: u64 = 8;

/// Sizes towards ranks that are reached through memory, where there is no MTU.
#[derive(Clone, Copy, Debug)]
pub struct MemoryPath {
    /// Payload bytes of a full packet, a multiple of
    /// [`SEGMENT_ALIGNMENT`](crate::segment::SEGMENT_ALIGNMENT).
    pub segment_bytes: u32,
    /// Bytes that may be in flight to one peer.
    pub window: ByteCount,
}

/// How a peer is reached.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Reach {
    /// By packets over a network.
    Network,
    /// Through memory of this host.
    Host,
}

/// The state of a rank that all its peers share.
#[derive(Debug)]
pub(crate) struct RankState {
    pub(crate) network: EndpointSettings,
    host: Option<Box<EndpointSettings>>,
    /// The ranks of this host, in order.
    near: Vec<Rank>,
    pub(crate) ledger: Ledger,
    pub(crate) grants: Grants,
    /// Those of ranks that are reached through memory, which has room for a window of each.
    near_grants: Grants,
    /// Whether the network has lost a packet of this rank.
    pub(crate) has_lost: bool,
    /// How long peers have taken to answer their first grants, since packets were lost.
    first_answers: Rtt,
    /// How long the first round trips to peers have taken.
    first_round_trips: Rtt,
}

impl RankState {
    pub(crate) fn new(network: EndpointSettings, ledger: Ledger) -> Self {
        Self {
            grants: Grants::new(
                network.grant_segments,
                network.in_segments(network.window.short()),
            ),
            near_grants: Grants::new(None, 1),
            network,
            host: None,
            near: Vec::new(),
            ledger,
            has_lost: false,
            first_answers: Rtt::new(Span::ZERO),
            first_round_trips: Rtt::new(Span::ZERO),
        }
    }

    /// This sender has heard a report; `first` is its first round trip, if the report gave it.
    /// Returns true once: as soon as a packet is lost and a first round trip is known.
    pub(crate) fn note_report(
        &mut self,
        reach: Reach,
        first: Option<Span>,
        sender: &Sender,
    ) -> bool {
        let was_known = self.knows_first_reports();
        self.has_lost |= sender.has_lost();
        if let (Reach::Network, Some(took)) = (reach, first) {
            self.first_round_trips.sample(took);
        }
        !was_known && self.knows_first_reports()
    }

    fn knows_first_reports(&self) -> bool {
        self.has_lost && self.first_round_trips.is_known()
    }

    /// How long the first report of a peer may take, once packets are lost and another peer has
    /// reported.
    pub(crate) fn first_report_wait(&self) -> Option<Span> {
        let first = &self.first_round_trips;
        (self.knows_first_reports()).then(|| first.answer_wait() + first.smoothed())
    }

    /// From now on `ranks` are reached through memory.
    pub(crate) fn bring_near(&mut self, mut ranks: Vec<Rank>, near: MemoryPath) {
        ranks.sort_unstable();
        self.host = Some(Box::new(near_settings(&self.network, near)));
        self.near = ranks;
    }

    /// The first message to each peer has this id.
    pub(crate) fn begin_with(&mut self, first: MessageId) {
        self.network.first_message = first;
        if let Some(host) = &mut self.host {
            host.first_message = first;
        }
    }

    /// The first packet of each path has this number.
    pub(crate) fn begin_paths_with(&mut self, first: PathNumber) {
        self.network.first_number = first;
        if let Some(host) = &mut self.host {
            host.first_number = first;
        }
    }

    /// Every peer is remembered within these limits.
    pub(crate) fn remember(&mut self, limits: EndpointLimits) {
        self.network.limits = limits;
        if let Some(host) = &mut self.host {
            host.limits = limits;
        }
        self.ledger.keep_steps(limits.steps);
    }

    pub(crate) fn reach(&self, rank: Rank) -> Reach {
        match self.near.binary_search(&rank) {
            Ok(_) => Reach::Host,
            Err(_) => Reach::Network,
        }
    }

    pub(crate) fn settings(&self, reach: Reach) -> &EndpointSettings {
        settings_of(reach, &self.network, self.host.as_deref())
    }

    /// Whether messages from there wait for grants.
    pub(crate) fn grants_in_turn(&self, reach: Reach) -> bool {
        reach == Reach::Network && !self.grants.is_unlimited()
    }

    /// Lends the receiver of the peer at `place` what it works with.
    #[inline]
    pub(crate) fn lend(
        &mut self,
        now: Instant,
        place: usize,
        reach: Reach,
        rtt: &Rtt,
    ) -> RankResources<'_> {
        let gap = gap(rtt, &self.network);
        RankResources {
            now,
            settings: settings_of(reach, &self.network, self.host.as_deref()),
            ledger: &mut self.ledger,
            grants: match reach {
                Reach::Host => &mut self.near_grants,
                Reach::Network => &mut self.grants,
            },
            place: place as u32,
            gap,
            overtaking: overtaking(rtt, &self.network),
            hold: hold(rtt, &self.network),
            first_answers: match reach {
                Reach::Network if self.has_lost => Some(&mut self.first_answers),
                _ => None,
            },
        }
    }
}

/// The settings towards a peer. Separate from [`RankState`], so that the rest of it can be lent
/// too.
fn settings_of<'a>(
    reach: Reach,
    network: &'a EndpointSettings,
    host: Option<&'a EndpointSettings>,
) -> &'a EndpointSettings {
    match reach {
        Reach::Host => host.unwrap_or(network),
        Reach::Network => network,
    }
}

/// The settings towards ranks of the same host.
fn near_settings(network: &EndpointSettings, near: MemoryPath) -> EndpointSettings {
    let part = near.window.get() / RUNS_PER_WINDOW / u64::from(near.segment_bytes);
    EndpointSettings {
        segment_bytes: near.segment_bytes,
        window: SendWindow::Bytes(near.window),
        initial_window: near.window,
        unscheduled: near.window,
        run_segments: part.clamp(1, RUN_SEGMENTS_MAX as u64) as usize,
        entropies: 1,
        grant_segments: None,
        parity: ParityRule::None,
        ..network.clone()
    }
}

/// How long an answer may take: the job's gap, or longer when the round trip is known to be.
fn gap(rtt: &Rtt, settings: &EndpointSettings) -> Span {
    match rtt.is_known() {
        true => settings.gap.max(rtt.answer_wait().min(VARIED_GAP_MAX)),
        false => settings.gap,
    }
}

/// Whether the path is known to be long.
fn is_long(rtt: &Rtt, settings: &EndpointSettings) -> bool {
    rtt.is_known() && rtt.is_long(settings.delay_target)
}

/// How long no segment may arrive before holes are accepted: on a long path, where no packet is
/// overtaken by a whole round trip, as long as the sender takes a segment for late, not lost.
fn overtaking(rtt: &Rtt, settings: &EndpointSettings) -> Span {
    let gap = gap(rtt, settings);
    match is_long(rtt, settings) {
        true => settings.gap.max(rtt.reordering(settings.gap)).min(gap),
        false => gap,
    }
}

/// How long parity waits for a late segment: on a long path a small part of a round trip.
fn hold(rtt: &Rtt, settings: &EndpointSettings) -> Span {
    match is_long(rtt, settings) {
        true => rtt.least().divided(ROUND_TRIP_PER_HOLD),
        false => Span::ZERO,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::job::Job;
    use crate::settings::Identity;
    use crate::units::{JobId, Share};

    const IDENTITY: Identity = Identity {
        rank: Rank(0),
        world_size: 2,
        job: JobId(1),
        epoch: 0,
    };

    /// The state of rank 0 of so many.
    pub(crate) fn rank_state(world_size: u16) -> RankState {
        let identity = Identity {
            world_size,
            ..IDENTITY
        };
        let settings = EndpointSettings::new(identity, &Job::default());
        RankState::new(settings, Ledger::new(Share::ALL))
    }

    #[test]
    fn a_round_trip_of_minutes_makes_no_long_gap() {
        let settings = EndpointSettings::new(IDENTITY, &Job::default());
        let mut rtt = Rtt::new(settings.gap);
        rtt.sample(Span::from_micros(100));
        // The peer stood still for ten minutes, and answers the packets that it finds then.
        rtt.sample(Span::from_millis(600_000));
        let gap = gap(&rtt, &settings);
        assert!(gap <= VARIED_GAP_MAX, "{gap}");
    }

    #[test]
    fn holes_wait_for_less_than_a_long_round_trip() {
        let settings = EndpointSettings::new(IDENTITY, &Job::default());
        let waits = |millis| {
            let mut rtt = Rtt::new(settings.gap);
            (0..40).for_each(|_| rtt.sample(Span::from_millis(millis)));
            [gap(&rtt, &settings), overtaking(&rtt, &settings)].map(Span::as_micros)
        };
        assert_eq!(
            waits(4),
            [4_000, 4_000],
            "it may be the queue of a short path"
        );
        assert_eq!(waits(40), [40_001, 10_000]);
    }
}
