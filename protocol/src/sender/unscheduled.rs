//! How much of a message leaves before its receiver is known to be ready.
//!
//! 1. A message that waits until its receiver has posted it waits for a round trip. So it begins
//!    with `transport.unscheduled` bytes, which the receiver keeps until it posts the message.
//! 2. On a long path the round trip costs more, and most receivers are ready when the first bytes
//!    arrive. So the start grows as the window does. A receiver keeps no more than one such start
//!    of a peer: until it has posted messages that began with more than the usual start, others
//!    begin with the rest of it, and with the usual one at least.
//! 3. A receiver that grants learns of unscheduled segments only when they arrive. So all messages
//!    to one peer share the unscheduled start of one: many peers that begin many small messages at
//!    once would overload the receiver's link. The first message always has it.

use super::Sender;
use super::message::UnscheduledStart;
use crate::settings::EndpointSettings;
use crate::wire::HEADER_BYTES;

impl Sender {
    /// How many segments of a new message of `bytes` may be sent before its receiver grants any.
    pub(super) fn unscheduled_start(
        &mut self,
        bytes: u32,
        settings: &EndpointSettings,
    ) -> UnscheduledStart {
        let whole = u64::from(bytes) + HEADER_BYTES as u64;
        let usual = u64::from(settings.unscheduled_segments()) * u64::from(settings.segment_bytes);
        let (most, taken) = match settings.grant_segments {
            Some(_) if self.unscheduled > 0 && self.unscheduled + usual.min(whole) > usual => {
                return UnscheduledStart::default();
            }
            Some(_) => (usual, usual.min(whole)),
            None => {
                let left = self
                    .window
                    .stretched(usual)
                    .saturating_sub(self.unscheduled);
                (usual.max(left), whole.min(left).saturating_sub(usual))
            }
        };
        self.unscheduled += taken;
        UnscheduledStart {
            segments: (most / u64::from(settings.segment_bytes)) as u32,
            bytes: taken,
            ..UnscheduledStart::default()
        }
    }

    /// The receiver of the message at `at` has granted so many segments: gives back what the
    /// message took, if it is posted there, or if the receiver needs only to have heard of it.
    pub(super) fn release_start(&mut self, at: usize, granted: u32, settings: &EndpointSettings) {
        if granted > settings.unscheduled_segments() || settings.grant_segments.is_some() {
            self.unscheduled -= self.messages[at].release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::Feedback;
    use crate::job::{GrantWindow, Job};
    use crate::rtt::Rtt;
    use crate::settings::Identity;
    use crate::units::{ByteCount, Instant, JobId, Rank, Span};

    fn settings(grants: Option<GrantWindow>) -> EndpointSettings {
        let identity = Identity {
            rank: Rank(0),
            world_size: 2,
            job: JobId(1),
            epoch: 0,
        };
        let mut job = Job::default();
        job.transport.grant_window = grants;
        EndpointSettings::new(identity, &job)
    }

    /// KiB that messages of these MiB may begin with, on a path with this round trip.
    fn starts(settings: &EndpointSettings, millis: u64, messages: &[u64]) -> Vec<u64> {
        let mut sender = Sender::new(Rank(1), settings, 1);
        let mut rtt = Rtt::new(settings.gap);
        rtt.sample(Span::from_millis(millis));
        sender
            .window
            .on_feedback(Instant::START, Feedback::default(), &rtt);
        let start = |mib: &u64| {
            let start = sender.unscheduled_start((mib << 20) as u32, settings);
            u64::from(start.segments) * u64::from(settings.segment_bytes) / 1024
        };
        messages.iter().map(start).collect()
    }

    #[test]
    fn a_start_follows_the_path_and_its_peer_keeps_one_of_them() {
        let unlimited = settings(None);
        assert_eq!(starts(&unlimited, 1, &[8, 8]), [255, 255]);
        let long = starts(&unlimited, 40, &[1, 8, 8, 1]);
        assert_eq!(long, [10_200, 9_429, 1_492, 255], "of 10 MiB together");
    }

    #[test]
    fn where_segments_are_granted_it_stays() {
        let granted = settings(Some(GrantWindow::Bytes(ByteCount::mib(1))));
        assert_eq!(starts(&granted, 40, &[8, 8]), [255, 0]);
    }
}
