//! The inquiry about an operation that takes too long, and its verdict: which ranks have not
//! entered the operation, which are in another one, and which do not answer.
//!
//! Questions and answers travel over the control plane, which has a thread of its own. So a rank
//! answers even while its program computes or waits for something else.

use std::collections::BTreeMap;
use std::fmt::Write;

use gradwire_collectives::operation::{OperationId, OperationLabel};
use gradwire_collectives::overdue::{OverdueOperation, OverdueQuestion, QuestionSide, Whereabouts};
use gradwire_protocol::units::{Instant, Rank, Span};
use gradwire_transport::control::RankList;
use serde::{Deserialize, Serialize};

/// How long to wait for answers: a rank that runs answers within milliseconds.
const ANSWER_TIME: Span = Span::from_millis(800);
/// How long a rank waits for the verdict of another one that has asked about the same operation.
pub(crate) const VERDICT_TIME: Span = Span::from_millis(1_000);
/// How many ranks a verdict describes in detail.
const DETAILED: usize = 8;

/// A question as it travels.
#[derive(Debug, Deserialize, Serialize)]
struct WireQuestion {
    group: u16,
    sequence: u32,
    side: u8,
}

/// An answer as it travels.
#[derive(Debug, Deserialize, Serialize)]
struct WireAnswer {
    group: u16,
    sequence: u32,
    /// The call under that number, as its signature and in words.
    there: Option<(u32, String)>,
    last: Option<(u32, String)>,
    pending: Vec<String>,
}

/// The question in the form of the control plane.
pub(crate) fn question(question: &OverdueQuestion) -> String {
    let side = match question.side {
        QuestionSide::Member => 0,
        QuestionSide::Sender => 1,
        QuestionSide::Receiver => 2,
    };
    let asked = WireQuestion {
        group: question.group,
        sequence: question.sequence,
        side,
    };
    serde_json::to_string(&asked).expect("numbers are JSON")
}

/// Reads the question of another rank; `None` if this build does not understand it.
pub(crate) fn asked(text: &str) -> Option<OverdueQuestion> {
    let asked: WireQuestion = serde_json::from_str(text).ok()?;
    let side = match asked.side {
        0 => QuestionSide::Member,
        1 => QuestionSide::Sender,
        2 => QuestionSide::Receiver,
        _ => return None,
    };
    Some(OverdueQuestion {
        group: asked.group,
        sequence: asked.sequence,
        side,
    })
}

/// The answer in the form of the control plane.
pub(crate) fn answer(question: &OverdueQuestion, whereabouts: &Whereabouts) -> String {
    let signed = |label: &OperationLabel| (label.call.signature().bits(), label.to_string());
    let answer = WireAnswer {
        group: question.group,
        sequence: question.sequence,
        there: whereabouts.there.as_ref().map(signed),
        last: (whereabouts.last.as_ref()).map(|label| (label.sequence, label.to_string())),
        pending: whereabouts
            .pending
            .iter()
            .map(OperationLabel::to_string)
            .collect(),
    };
    serde_json::to_string(&answer).expect("numbers and texts are JSON")
}

/// An overdue operation, about which the other ranks are asked.
#[derive(Debug)]
pub(crate) struct OverdueInquiry {
    pub(crate) id: OperationId,
    until: Instant,
    /// The rank that asks, if it is another one.
    asker: Option<Rank>,
    label: OperationLabel,
    question: OverdueQuestion,
    others: Vec<Rank>,
    answers: BTreeMap<Rank, WireAnswer>,
}

impl OverdueInquiry {
    /// The inquiry of rank `me`. A rank waits a little longer for another rank's verdict than for
    /// answers.
    pub(crate) fn new(now: Instant, me: Rank, overdue: &OverdueOperation) -> Self {
        let others = overdue.ranks.iter().copied();
        Self {
            id: overdue.id,
            until: now + ANSWER_TIME,
            asker: None,
            label: overdue.label,
            question: overdue.question,
            others: others.filter(|&rank| rank != me).collect(),
            answers: BTreeMap::new(),
        }
    }

    /// The inquiry when another rank asks already: its verdict will arrive.
    pub(crate) fn of_another(mut self, now: Instant, asker: Rank) -> Self {
        self.until = now + VERDICT_TIME;
        self.asker = Some(asker);
        self
    }

    /// When it has to be concluded.
    pub(crate) fn until(&self) -> Instant {
        self.until
    }

    /// Takes an answer; returns whether it was the last one.
    pub(crate) fn take(&mut self, from: Rank, text: &str) -> bool {
        let answer: Option<WireAnswer> = serde_json::from_str(text).ok();
        let about = |answer: &WireAnswer| {
            (answer.group, answer.sequence) == (self.question.group, self.question.sequence)
        };
        if let Some(answer) = answer.filter(about) {
            self.answers.insert(from, answer);
        }
        let here = |rank| self.answers.contains_key(rank);
        self.others.iter().all(here)
    }

    /// The answers so far, in words.
    pub(crate) fn verdict(&self) -> String {
        if let Some(asker) = self.asker {
            return format!("rank {asker} asked how far the others are, and sent no verdict");
        }
        let mut parts = Vec::new();
        let absent: Vec<Rank> = self.those(|answer| !self.has_entered(answer));
        if !absent.is_empty() {
            parts.push(self.absence(&absent));
        }
        for rank in self.those(|answer| self.is_elsewhere(answer)) {
            let there = self
                .answers
                .get(&rank)
                .and_then(|answer| answer.there.as_ref());
            let there = there.map_or("", |(_, label)| label);
            parts.push(format!("rank {rank} is in {there} instead"));
        }
        let silent = self.others.iter().copied();
        let silent: Vec<Rank> = silent
            .filter(|rank| !self.answers.contains_key(rank))
            .collect();
        if !silent.is_empty() {
            let ranks: RankList = silent.into_iter().collect();
            parts.push(format!("{ranks} did not answer when asked"));
        }
        if parts.is_empty() {
            parts.push("all ranks have entered it".to_owned());
        }
        parts.join("; ")
    }

    fn those(&self, is: impl Fn(&WireAnswer) -> bool) -> Vec<Rank> {
        let answers = self
            .others
            .iter()
            .filter_map(|rank| self.answers.get_key_value(rank));
        answers
            .filter(|(_, answer)| is(answer))
            .map(|(&rank, _)| rank)
            .collect()
    }

    fn has_entered(&self, answer: &WireAnswer) -> bool {
        let is_past = || {
            let last = answer.last.as_ref();
            last.is_some_and(|&(sequence, _)| {
                (sequence.wrapping_sub(self.label.sequence) as i32) >= 0
            })
        };
        answer.there.is_some() || (self.question.side == QuestionSide::Member && is_past())
    }

    fn is_elsewhere(&self, answer: &WireAnswer) -> bool {
        let signature = self.label.call.signature().bits();
        self.question.side == QuestionSide::Member
            && (answer.there.as_ref()).is_some_and(|&(other, _)| other != signature)
    }

    fn absence(&self, absent: &[Rank]) -> String {
        let ranks: RankList = absent.iter().copied().collect();
        let have = if absent.len() == 1 { "has" } else { "have" };
        let mut text = format!("{ranks} {have} not entered it (");
        for (index, rank) in absent.iter().take(DETAILED).enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            let is = self.answers.get(rank).map_or_else(String::new, doing);
            write!(text, "{separator}rank {rank} {is}").expect("a text takes text");
        }
        text.push(')');
        text
    }
}

/// The state of a rank that has not entered the operation, in words.
fn doing(answer: &WireAnswer) -> String {
    match (answer.pending.first(), &answer.last) {
        (Some(pending), _) => format!("is in {pending}"),
        (None, Some((_, last))) => format!("is in no operation, its last call was {last}"),
        (None, None) => format!("has called nothing in group {}", answer.group),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradwire_collectives::call::{Call, ContributionForm};
    use gradwire_collectives::dtype::{DType, ReduceOp};
    use gradwire_collectives::operation::Collective;

    fn label(collective: Collective, sequence: u32) -> OperationLabel {
        let call = Call {
            collective,
            op: collective.reduces().then_some(ReduceOp::Sum),
            dtype: Some(DType::F32),
            elements: Some(9),
            form: ContributionForm::Plain,
        };
        OperationLabel {
            call,
            group: 0,
            sequence,
        }
    }

    fn inquiry() -> OverdueInquiry {
        let overdue = OverdueOperation {
            id: OperationId(1),
            label: label(Collective::AllReduce, 7),
            ranks: (0..5).map(Rank).collect(),
            question: OverdueQuestion {
                group: 0,
                sequence: 7,
                side: QuestionSide::Member,
            },
        };
        OverdueInquiry::new(Instant::START, Rank(0), &overdue)
    }

    #[test]
    fn a_verdict_locates_every_rank() {
        let mut inquiry = inquiry();
        let asked = asked(&question(&OverdueQuestion {
            group: 0,
            sequence: 7,
            side: QuestionSide::Member,
        }));
        let asked = asked.expect("it is a question");
        let sum = label(Collective::AllReduce, 7);
        let gather = label(Collective::AllGather, 6);
        let barrier = label(Collective::Broadcast { root: Rank(2) }, 7);
        let states = [
            (1, Some(sum), sum),
            (2, None, gather),
            (3, Some(barrier), barrier),
        ];
        for (rank, there, last) in states {
            let whereabouts = Whereabouts {
                there,
                last: Some(last),
                pending: there.into_iter().collect(),
            };
            assert!(!inquiry.take(Rank(rank), &answer(&asked, &whereabouts)));
        }
        assert_eq!(
            inquiry.verdict(),
            "rank 2 has not entered it (rank 2 is in no operation, its last call was all_gather of \
             9 f32, group 0, sequence 6); rank 3 is in broadcast of 9 f32 from rank 2, group 0, \
             sequence 7 instead; rank 4 did not answer when asked"
        );
        let nothing = Whereabouts::default();
        assert!(inquiry.take(Rank(4), &answer(&asked, &nothing)));
        let both = "ranks 2 and 4 have not entered it (rank 2";
        assert!(inquiry.verdict().starts_with(both));
        assert!(
            inquiry
                .verdict()
                .contains("rank 4 has called nothing in group 0")
        );
    }

    #[test]
    fn answers_to_other_questions_are_ignored() {
        let mut inquiry = inquiry();
        let other = OverdueQuestion {
            group: 1,
            sequence: 7,
            side: QuestionSide::Sender,
        };
        for text in ["", "{}", &answer(&other, &Whereabouts::default())] {
            assert!(!inquiry.take(Rank(1), text));
        }
        assert_eq!(
            inquiry.verdict(),
            "ranks 1, 2, 3 and 4 did not answer when asked"
        );
        assert_eq!(asked("\"where?\""), None);
    }
}
