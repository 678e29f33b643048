//! Interprets a probe's counts. A result is wrong only if no queue of the plan could have caused
//! it.

use gradwire_protocol::machine::Ecn;
use gradwire_switch_config::counters::CounterVerdict::{self, Odd, Right, Unseen, Wrong};
use gradwire_switch_config::counters::Judgement;
use gradwire_transport::probe::{Passage, Passages};

use super::Tagged;

/// Below this many packets a share is meaningless.
const FEW: u32 = 50;
/// A share of packets that chance does not bring about.
const CLEAR: f64 = 0.05;

/// Packets of a class: protected, and droppable where some were sent.
struct Class<'a> {
    name: String,
    protected: &'a Passage,
    droppable: Option<&'a Passage>,
}

/// Judges everything that came of some streams: tags, classes, and their order.
pub fn all(tags: &[Tagged], passages: &Passages) -> Vec<Judgement> {
    let mut judgements = vec![tagging(tags, &passages.streams)];
    let classes = classes(tags, &passages.streams);
    let one = |class: &Class<'_>| match class.name.as_str() {
        "control" => control(class),
        _ => data(class),
    };
    let judged = classes.iter().map(|class| {
        let (verdict, text) = one(class);
        judgement(verdict, &class.name, text)
    });
    judgements.extend(judged);
    judgements.push(order(&classes));
    if passages.kernel_drops > 0 {
        // Packets that look lost may never have been sent: only tags are certain then.
        for judgement in &mut judgements[1..] {
            judgement.verdict = match judgement.verdict {
                Wrong => Odd,
                other => other,
            };
        }
        let text = format!(
            "its kernel dropped {} packets for want of room, which count as lost here; send less",
            passages.kernel_drops
        );
        judgements.push(judgement(Odd, "the other host", text));
    }
    judgements
}

fn judgement(verdict: CounterVerdict, place: &str, text: impl Into<String>) -> Judgement {
    Judgement {
        verdict,
        place: place.to_owned(),
        text: text.into(),
    }
}

fn classes<'a>(tags: &[Tagged], streams: &'a [Passage]) -> Vec<Class<'a>> {
    let mut classes: Vec<Class<'a>> = Vec::new();
    for (tag, passage) in tags.iter().zip(streams) {
        let name = tag.name();
        match classes.last_mut() {
            Some(class) if class.name == name => class.droppable = Some(passage),
            _ => classes.push(Class {
                name,
                protected: passage,
                droppable: None,
            }),
        }
    }
    classes
}

fn lost(passage: &Passage) -> u32 {
    passage.sent.saturating_sub(passage.received)
}

fn share(count: u32, of: u32) -> f64 {
    f64::from(count) / f64::from(of.max(1))
}

fn tagging(tags: &[Tagged], streams: &[Passage]) -> Judgement {
    let mut changes = Vec::new();
    let mut received = 0;
    for (tag, passage) in tags.iter().zip(streams) {
        let name = format!("{} (DSCP {})", tag.name(), tag.stream.dscp);
        received += passage.received;
        if passage.rewritten > 0 {
            changes.push(format!(
                "{} of {name} came with another DSCP",
                passage.rewritten
            ));
        }
        if passage.bleached > 0 {
            changes.push(format!(
                "{} of {name} came without their ECT",
                passage.bleached
            ));
        }
        if tag.stream.ecn == Ecn::NotEct && passage.marked > 0 {
            changes.push(format!(
                "{} of {name} are not ECT and came marked",
                passage.marked
            ));
        }
    }
    match (changes.is_empty(), received) {
        (true, 0) => judgement(Unseen, "tags", "nothing came"),
        (true, _) => judgement(Right, "tags", "all came as they were sent"),
        (false, _) => judgement(Wrong, "tags", changes.join("; ")),
    }
}

fn control(class: &Class<'_>) -> (CounterVerdict, String) {
    let passage = class.protected;
    let told = format!(
        "{} of {} lost, {} marked",
        lost(passage),
        passage.sent,
        passage.marked
    );
    match (lost(passage), passage.marked) {
        (0, 0) => (Right, told),
        (0, _) => (Wrong, format!("{told}: its queue must not mark")),
        _ => {
            let why = "the highest queue must not lose; is DSCP trusted on every port between?";
            (Wrong, format!("{told}: {why}"))
        }
    }
}

fn data(class: &Class<'_>) -> (CounterVerdict, String) {
    let protected = class.protected;
    let none = Passage::default();
    let droppable = class.droppable.unwrap_or(&none);
    let told = format!(
        "protected: {} of {} lost, {} marked; droppable: {} of {} lost",
        lost(protected),
        protected.sent,
        protected.marked,
        lost(droppable),
        droppable.sent
    );
    let kept = share(lost(protected), protected.sent);
    let marked = share(protected.marked, protected.received);
    let dropped = share(lost(droppable), droppable.sent);
    let tells = protected.sent.min(droppable.sent) >= FEW;
    let (verdict, why) = match lost(protected) {
        0 if protected.marked + lost(droppable) == 0 => {
            (Unseen, "its queue was never deep: raise --rate")
        }
        0 if tells && marked > CLEAR && lost(droppable) == 0 => {
            (Wrong, "the queue marks ECT and does not drop not-ECT early")
        }
        0 if tells && dropped > CLEAR && protected.marked == 0 => (
            Odd,
            "the queue drops not-ECT early and does not mark ECT: right where drop precedence \
             stands in for ECN",
        ),
        0 => (Right, ""),
        _ if tells && kept > CLEAR && dropped <= kept => (
            Wrong,
            "what is protected is lost as often: the queue does not tell them apart",
        ),
        _ => (
            Odd,
            "protected packets are lost: a full buffer, or a bad link",
        ),
    };
    match why {
        "" => (verdict, told),
        why => (verdict, format!("{told}: {why}")),
    }
}

/// Of two classes the higher one loses no larger share and waits no longer. It may where it alone
/// is more than the link carries: then it fills its own queue, and the lower one does not.
fn order(classes: &[Class<'_>]) -> Judgement {
    let place = "order of classes";
    let spoke = |class: &&Class<'_>| class.protected.sent >= FEW;
    let classes: Vec<&Class<'_>> = classes.iter().filter(spoke).collect();
    for pair in classes.windows(2) {
        let [high, low] = [&pair[0], &pair[1]];
        let shares = [high, low].map(|class| share(lost(class.protected), class.protected.sent));
        if shares[0] > shares[1] + CLEAR {
            let text = format!(
                "{} loses {:.1} % of what is protected, {} below it {:.1} %: is it served first?",
                high.name,
                100.0 * shares[0],
                low.name,
                100.0 * shares[1]
            );
            return judgement(Odd, place, text);
        }
        let waits = high.protected.delays.zip(low.protected.delays);
        if let Some((high_delays, low_delays)) = waits
            && high_delays.0 > low_delays.1 * 2
            && high_delays.0.as_micros() >= 1_000
        {
            let text = format!(
                "half of {} waits longer than 99 in 100 of {} below it: is it served first?",
                high.name, low.name
            );
            return judgement(Odd, place, text);
        }
    }
    let congested = classes.iter().any(|class| {
        class.protected.marked > 0 || class.droppable.is_some_and(|one| lost(one) > 0)
    });
    match congested {
        true => judgement(
            Right,
            place,
            "no class loses more, or waits longer, than the one below it",
        ),
        false => judgement(Unseen, place, "no queue was deep"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gradwire_netsim::transports::open_loop::PacketStream;
    use gradwire_protocol::units::{Class as Number, Dscp, Rate};

    use super::*;

    /// Control, and two classes of each a protected and a droppable stream.
    fn tags() -> Vec<Tagged> {
        let kinds = [
            (0, 40, Ecn::Ect),
            (1, 34, Ecn::Ect),
            (1, 34, Ecn::NotEct),
            (2, 26, Ecn::Ect),
            (2, 26, Ecn::NotEct),
        ];
        let tag = |(class, dscp, ecn)| Tagged {
            class: Number(class),
            stream: PacketStream {
                dscp: Dscp(dscp),
                ecn,
                rate: Rate::from_gbps(1),
                payload: 1_000,
            },
        };
        kinds.map(tag).to_vec()
    }

    fn came(lost: u32, marked: u32) -> Passage {
        Passage {
            sent: 1_000,
            received: 1_000 - lost,
            marked,
            delays: Some((Duration::from_millis(1), Duration::from_millis(2))),
            ..Passage::default()
        }
    }

    /// As it should be: the last class is congested.
    fn good() -> Passages {
        let [none, marks, drops] = [came(0, 0), came(0, 600), came(550, 0)];
        Passages {
            streams: vec![none, none, none, marks, drops],
            ..Passages::default()
        }
    }

    /// Verdicts by place, where they are not right.
    fn found(passages: &Passages) -> Vec<(String, CounterVerdict)> {
        let all = all(&tags(), passages).into_iter();
        let all = all.filter(|one| one.verdict != Right);
        all.map(|one| (one.place, one.verdict)).collect()
    }

    fn changed(stream: usize, passage: Passage) -> Vec<(String, CounterVerdict)> {
        let mut passages = good();
        passages.streams[stream] = passage;
        found(&passages)
    }

    fn only(place: &str, verdict: CounterVerdict) -> Vec<(String, CounterVerdict)> {
        vec![("class-1".to_owned(), Unseen), (place.to_owned(), verdict)]
    }

    #[test]
    fn marks_and_drops_are_right_shallow_queues_unseen() {
        let unseen = vec![("class-1".to_owned(), Unseen)];
        assert_eq!(found(&good()), unseen);
    }

    #[test]
    fn a_lost_or_marked_control_packet_is_wrong() {
        for passage in [came(1, 0), came(0, 1)] {
            let mut expected = only("control", Wrong);
            expected.reverse();
            assert_eq!(changed(0, passage), expected);
        }
    }

    #[test]
    fn a_changed_tag_is_wrong() {
        let rewritten = Passage {
            rewritten: 1,
            ..came(0, 0)
        };
        let bleached = Passage {
            bleached: 1,
            ..came(0, 0)
        };
        for (stream, passage) in [(1, rewritten), (1, bleached), (2, came(0, 1))] {
            let found = changed(stream, passage);
            let [(place, verdict), ..] = &found[..] else {
                panic!("nothing found");
            };
            assert_eq!((place.as_str(), *verdict), ("tags", Wrong));
        }
    }

    #[test]
    fn queues_that_ignore_protection_are_wrong() {
        let found = changed(3, came(600, 0));
        assert_eq!(found, only("class-2", Wrong));
    }

    #[test]
    fn full_queues_without_marks_or_drops_are_wrong() {
        assert_eq!(changed(4, came(0, 0)), only("class-2", Wrong));
    }

    #[test]
    fn drops_without_marks_and_a_full_buffer_are_odd() {
        assert_eq!(changed(3, came(0, 0)), only("class-2", Odd));
        assert_eq!(changed(3, came(30, 500)), only("class-2", Odd));
    }

    #[test]
    fn classes_worse_than_lower_ones_are_odd() {
        let mut passages = good();
        passages.streams[1] = came(100, 500);
        passages.streams[2] = came(500, 0);
        let odd = ("order of classes".to_owned(), Odd);
        assert!(found(&passages).contains(&odd));
        let mut passages = good();
        let waits = [50, 60].map(Duration::from_millis);
        passages.streams[1].delays = Some((waits[0], waits[1]));
        assert!(found(&passages).contains(&odd));
    }

    #[test]
    fn what_a_busy_receiver_drops_makes_losses_uncertain() {
        let mut passages = good();
        passages.streams[0] = came(10, 0);
        passages.kernel_drops = 10;
        let found = found(&passages);
        let wrong = found.iter().any(|(_, verdict)| *verdict == Wrong);
        assert!(!wrong, "{found:?}");
        assert!(found.contains(&("the other host".to_owned(), Odd)));
    }
}
