//! Trees that are written and read again.

use proptest::prelude::*;

use super::*;

/// Texts of letters that YAML has a meaning for, and words that are no texts without quotes.
fn texts() -> impl Strategy<Value = String> {
    let letters = "[-a-c0-9,:\\[\\]{}'\"#&*!|>?%@`~ \\\\.\n\t\r\u{7}\u{7f}\u{85}\u{2028}é]{0,6}";
    prop_oneof![letters, "on|null|5|0x1f|\\{\\}|\\[\\]"]
}

/// Trees of maps and lists with texts at their ends.
fn trees() -> impl Strategy<Value = ConfigEntry> {
    let leaf = prop_oneof![
        texts().prop_map(|text| ConfigEntry {
            line: Some(quoted(&text)),
            ..ConfigEntry::part("", text)
        }),
        Just(map()),
        Just(ConfigEntry::part("", LIST)),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let items = prop::collection::vec(inner.clone(), 1..4);
        let pairs = prop::collection::btree_map(texts(), inner, 1..4);
        let list = items.prop_map(|items| {
            let items = items.into_iter().enumerate();
            let items = items.map(|(at, item)| (at.to_string(), item));
            (LIST, items.collect::<Vec<_>>())
        });
        let map = pairs.prop_map(|pairs| (EMPTY, pairs.into_iter().collect()));
        prop_oneof![list, map].prop_map(|(kind, below)| ConfigEntry {
            below: below
                .into_iter()
                .map(|(name, entry)| ConfigEntry { name, ..entry })
                .collect(),
            ..ConfigEntry::part("", kind)
        })
    })
}

/// Names, values, and whether each is a scalar.
fn meaning(entry: &ConfigEntry) -> Vec<(String, String, bool)> {
    let mut rows = vec![(
        entry.name.clone(),
        entry.value.clone(),
        entry.line.is_some(),
    )];
    rows.extend(entry.below.iter().flat_map(meaning));
    rows
}

proptest! {
    #[test]
    fn any_tree_is_read_as_it_was_written(tree in trees()) {
        let root = ConfigEntry {
            below: vec![ConfigEntry { name: "key".to_owned(), ..tree }],
            ..map()
        };
        let text = block(&root, 2);
        let read = parse("test", &text);
        let read = read.map(|read| meaning(&read));
        prop_assert_eq!(read, Ok(meaning(&root)), "{}", text);
    }
}

#[test]
fn a_merged_scalar_is_written_as_the_later_one() {
    let mut tree = parse("test", "a: 1\nb: {c: 2}\nd: '{}'\n").expect("YAML");
    let other = parse("test", "a: '5'\nb: x\nd: {e: 3}\n").expect("YAML");
    merge(&mut tree, other);
    assert_eq!(block(&tree, 0), "a: '5'\nb: x\nd:\n  e: 3\n");
}

#[test]
fn a_text_that_begins_as_a_list_does_is_quoted() {
    for (text, written) in [
        ("-", "'-'"),
        (",", "','"),
        ("10,20", "10,20"),
        ("a,b", "a,b"),
    ] {
        assert_eq!(quoted(text), written);
    }
}
