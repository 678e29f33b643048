//! Damaged exports: whatever the text is, a dialect answers, and never panics.

use gradwire_switch_config::dialect;
use gradwire_switch_config::plan::Plan;
use proptest::prelude::*;
use proptest::sample::Index;

/// The place of a cut, its length, and the text that is put there.
pub(crate) type Damage = Vec<(Index, usize, String)>;

/// Up to four pieces of an export that are something else.
pub(crate) fn damage() -> impl Strategy<Value = Damage> {
    let text = prop_oneof![
        "[ -~]{0,12}",
        Just("\n".to_owned()),
        Just("{".to_owned()),
        Just("\"".to_owned()),
        Just(" 99999999999999999999 ".to_owned()),
        Just(" no ".to_owned()),
    ];
    prop::collection::vec((any::<Index>(), 0_usize..40, text), 1..5)
}

/// A rendered plan, its change of an export, and that export are answered when damaged.
pub(crate) fn all_are_answered(plan: &Plan, export: &str, damage: &Damage) {
    let dialect = dialect::of(plan.target.platform);
    let change = dialect
        .change(plan, export)
        .expect("it can be read")
        .forward;
    for good in [export, &dialect.render(plan), &change] {
        is_answered(plan, export, &damaged(good, damage));
    }
}

/// The damaged text.
fn damaged(text: &str, damage: &Damage) -> String {
    let mut letters: Vec<char> = text.chars().collect();
    for (at, length, other) in damage {
        let start = at.index(letters.len() + 1);
        let end = (start + length).min(letters.len());
        letters.splice(start..end, other.chars());
    }
    letters.into_iter().collect()
}

/// Reads, compares and loads a text, as what is running and as a change: errors are answers. What
/// is read twice is the same.
fn is_answered(plan: &Plan, good: &str, text: &str) {
    let dialect = dialect::of(plan.target.platform);
    assert_eq!(dialect.read(plan, text), dialect.read(plan, text));
    if let Ok(change) = dialect.change(plan, text) {
        let applied = dialect.apply(text, &change.forward);
        let undone = applied.and_then(|after| dialect.apply(&after, &change.inverse));
        if let Err(error) = undone {
            assert_ne!(error.message, "", "{error:?}");
        }
    }
    let loaded = dialect.apply(good, text);
    assert_eq!(loaded, dialect.apply(good, text));
    assert_eq!(dialect.counters(plan, text), dialect.counters(plan, text));
}
