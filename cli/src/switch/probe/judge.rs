//! What a probe's counts mean. Wrong is only what no queue of the plan could have done.

use gradwire_protocol::machine::Ecn;
use gradwire_switch_config::counters::{Judgement, Verdict};
use gradwire_transport::probe::{Passage, Passages};

use super::Tagged;

/// Below so many packets a share says nothing.
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
        // What looks lost may never have been: only tags are certain then.
        for judgement in &mut judgements[1..] {
            judgement.verdict = match judgement.verdict {
                Verdict::Wrong => Verdict::Odd,
                other => other,
            };
        }
        let text = format!(
            "its kernel dropped {} packets for want of room, which count as lost here; send less",
            passages.kernel_drops
        );
        judgements.push(judgement(Verdict::Odd, "the other host", text));
    }
    judgements
}

fn judgement(verdict: Verdict, place: &str, text: String) -> Judgement {
    Judgement {
        verdict,
        place: place.to_owned(),
        text,
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
        (true, 0) => judgement(Verdict::Unseen, "tags", "nothing came".to_owned()),
        (true, _) => judgement(
            Verdict::Right,
            "tags",
            "all came as they were sent".to_owned(),
        ),
        (false, _) => judgement(Verdict::Wrong, "tags", changes.join("; ")),
    }
}

fn control(class: &Class<'_>) -> (Verdict, String) {
    let passage = class.protected;
    let told = format!(
        "{} of {} lost, {} marked",
        lost(passage),
        passage.sent,
        passage.marked
    );
    match (lost(passage), passage.marked) {
        (0, 0) => (Verdict::Right, told),
        (0, _) => (Verdict::Wrong, format!("{told}: its queue must not mark")),
        _ => {
            let why = "the highest queue must not lose; is DSCP trusted on every port between?";
            (Verdict::Wrong, format!("{told}: {why}"))
        }
    }
}

fn data(class: &Class<'_>) -> (Verdict, String) {
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
            (Verdict::Unseen, "its queue was never deep: raise --rate")
        }
        0 if tells && marked > CLEAR && lost(droppable) == 0 => (
            Verdict::Wrong,
            "the queue marks ECT and does not drop not-ECT early",
        ),
        0 if tells && dropped > CLEAR && protected.marked == 0 => (
            Verdict::Odd,
            "the queue drops not-ECT early and does not mark ECT: right where drop precedence \
             stands in for ECN",
        ),
        0 => (Verdict::Right, ""),
        _ if tells && kept > CLEAR && dropped <= kept => (
            Verdict::Wrong,
            "what is protected is lost as often: the queue does not tell them apart",
        ),
        _ => (
            Verdict::Odd,
            "protected packets are lost: a full buffer, or a bad link",
        ),
    };
    match why {
        "" => (verdict, told),
        why => (verdict, format!("{told}: {why}")),
    }
}

/// Of two classes the higher one loses no larger share and waits no longer.
fn order(classes: &[Class<'_>]) -> Judgement {
    let place = "order of classes";
    let spoke = |class: &&Class<'_>| class.protected.received >= FEW;
    let classes: Vec<&Class<'_>> = classes.iter().filter(spoke).collect();
    for pair in classes.windows(2) {
        let [high, low] = [&pair[0], &pair[1]];
        let shares = [high, low].map(|class| share(lost(class.protected), class.protected.sent));
        if shares[0] > shares[1] + CLEAR {
            let text = format!(
                "{} loses {:.1} % of what is protected, {} below it {:.1} %: it is not served first",
                high.name,
                100.0 * shares[0],
                low.name,
                100.0 * shares[1]
            );
            return judgement(Verdict::Wrong, place, text);
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
            return judgement(Verdict::Odd, place, text);
        }
    }
    let congested = classes.iter().any(|class| {
        class.protected.marked > 0 || class.droppable.is_some_and(|one| lost(one) > 0)
    });
    match congested {
        true => judgement(
            Verdict::Right,
            place,
            "no class loses more, or waits longer, than the one below it".to_owned(),
        ),
        false => judgement(Verdict::Unseen, place, "no queue was deep".to_owned()),
    }
}
