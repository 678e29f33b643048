//! Posted messages of which no packet has arrived.
//!
//! An algorithm may post thousands of messages from one peer at once that differ in nothing but
//! their keys, which follow each other. So they are kept as *runs*: the first request and the last
//! key. Messages are taken from the front of a run more often than from anywhere else.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::message::ReceiveRequest;
use crate::units::MessageKey;

/// Requests that differ only in their keys, which are consecutive numbers.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct PostedRun {
    first: ReceiveRequest,
    /// The key of the last one, which may be the greatest key there is.
    last: MessageKey,
}

impl PostedRun {
    /// The request with this key, if the run were long enough.
    fn request(&self, key: MessageKey) -> ReceiveRequest {
        ReceiveRequest { key, ..self.first }
    }

    /// How many they are.
    fn len(&self) -> usize {
        (self.last.0 - self.first.key.0) as usize + 1
    }

    /// Whether this request would be the next one.
    fn is_before(&self, request: &ReceiveRequest) -> bool {
        self.last.0.checked_add(1) == Some(request.key.0) && self.request(request.key) == *request
    }
}

/// The posted messages from one peer.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct PostedMessages {
    /// By key.
    runs: VecDeque<PostedRun>,
}

impl PostedMessages {
    /// How many messages there are.
    pub(super) fn len(&self) -> usize {
        self.runs.iter().map(PostedRun::len).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// All of them, by key.
    pub(super) fn iter(&self) -> impl Iterator<Item = ReceiveRequest> {
        let keys = |run: &PostedRun| run.first.key.0..=run.last.0;
        let runs = self.runs.iter();
        runs.flat_map(move |run| keys(run).map(|key| run.request(MessageKey(key))))
    }

    /// Adds a message. It replaces one with the same key.
    pub(super) fn post(&mut self, request: ReceiveRequest) {
        self.take(request.key);
        let at = self.after(request.key);
        if let Some(run) = at.checked_sub(1).map(|before| &mut self.runs[before])
            && run.is_before(&request)
        {
            run.last = request.key;
            return;
        }
        let run = PostedRun {
            first: request,
            last: request.key,
        };
        self.runs.insert(at, run);
    }

    /// Whether the message with this key is posted.
    pub(super) fn has(&self, key: MessageKey) -> bool {
        self.find(key).is_some()
    }

    /// Removes the message with this key.
    pub(super) fn take(&mut self, key: MessageKey) -> Option<ReceiveRequest> {
        let at = self.find(key)?;
        let run = self.runs[at];
        let request = run.request(key);
        let ends = (run.first.key == key, run.last == key);
        match ends {
            (true, true) => drop(self.runs.remove(at)),
            (true, false) => self.runs[at].first = run.request(MessageKey(key.0 + 1)),
            (false, is_last) => {
                self.runs[at].last = MessageKey(key.0 - 1);
                if !is_last {
                    let first = run.request(MessageKey(key.0 + 1));
                    self.runs.insert(at + 1, PostedRun { first, ..run });
                }
            }
        }
        Some(request)
    }

    /// The run that has the message with this key.
    fn find(&self, key: MessageKey) -> Option<usize> {
        let at = self.after(key).checked_sub(1)?;
        (key <= self.runs[at].last).then_some(at)
    }

    /// The first run that begins after this key.
    fn after(&self, key: MessageKey) -> usize {
        self.runs.partition_point(|run| run.first.key <= key)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::message::LengthRule;
    use crate::units::{Share, Signature, Step};

    fn request(key: u64, bytes: u32) -> ReceiveRequest {
        ReceiveRequest {
            key: MessageKey(key),
            signature: Signature::NONE,
            step: Step(0),
            bytes,
            length: LengthRule::Exact,
            tolerance: Share::NONE,
            urgency: None,
            patience_ends: None,
        }
    }

    proptest! {
        #[test]
        fn runs_hold_the_same_requests_as_a_map(
            changes in prop::collection::vec((0..24_u64, 0..3_u32), 0..200),
            is_greatest in any::<bool>(),
        ) {
            let lowest = if is_greatest { u64::MAX - 23 } else { 0 };
            let (mut posted, mut known) = (PostedMessages::default(), BTreeMap::new());
            for (key, bytes) in changes {
                let key = lowest + key;
                match bytes {
                    0 => prop_assert_eq!(posted.take(MessageKey(key)), known.remove(&key)),
                    bytes => {
                        posted.post(request(key, bytes));
                        known.insert(key, request(key, bytes));
                    }
                }
                prop_assert_eq!(posted.len(), known.len());
                prop_assert_eq!(posted.is_empty(), known.is_empty());
                prop_assert!(posted.iter().eq(known.values().copied()));
                for key in (0..24).map(|key| lowest + key) {
                    prop_assert_eq!(posted.has(MessageKey(key)), known.contains_key(&key));
                }
            }
        }
    }

    #[test]
    fn equal_messages_in_turn_are_one_run() {
        let mut posted = PostedMessages::default();
        (0..4_000).for_each(|key| posted.post(request(key, 8)));
        for key in 0..3_999 {
            assert_eq!(posted.take(MessageKey(key)), Some(request(key, 8)));
            assert_eq!(posted.runs.len(), 1);
        }
        assert_eq!(posted.len(), 1);
    }
}
