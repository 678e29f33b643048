//! Reads, prints and describes a job by the table of keys in [`super`].
//!
//! [`job_keys`] turns that table into the types of a job, their default, and one [`JobKey`] per
//! key. A row, `/// Sentence.` and `key: Type = default, format;`, defines a key completely.

use std::collections::BTreeSet;
use std::fmt::Write;

use toml::de::DeValue;

use super::form::{FormKey, KeyNeed, ValueForm};
use super::formats::quoted;
use super::spanned::{self, ROOT, TomlError, TomlProblem, TomlTable};
use super::{Job, KEYS};

/// One key of a job.
pub(super) struct JobKey {
    /// Its name, with its table in front: `transport.gap`.
    pub(super) name: &'static str,
    /// Its sentence.
    pub(super) sentence: &'static str,
    /// The allowed values.
    pub(super) allowed: fn() -> String,
    /// The form of its value.
    pub(super) form: fn() -> ValueForm,
    /// Stores a value; `None` if it is not allowed.
    pub(super) set: fn(&mut Job, &DeValue<'_>) -> Option<()>,
    /// The value as TOML.
    pub(super) show: fn(&Job) -> String,
}

/// Makes a [`JobKey`] of a row.
macro_rules! job_key {
    ($name:expr, ($($field:ident).+), $type:ty, $format:expr, $($doc:literal)+) => {{
        fn format() -> impl KeyFormat<Value = $type> {
            $format
        }
        JobKey {
            name: $name,
            sentence: concat!($($doc),+).trim_ascii_start(),
            allowed: || format().allowed(),
            form: || format().form(),
            set: |job, value| {
                job.$($field).+ = format().read(value)?;
                Some(())
            },
            show: |job| format().show(&job.$($field).+),
        }
    }};
}

/// Makes types, defaults and [`KEYS`] from the table.
macro_rules! job_keys {
    (
        $(#[doc = $job_doc:literal])+
        pub struct $job:ident {
            $($(#[doc = $doc:literal])+ $key:ident: $type:ty = $default:expr, $format:expr;)+
        }
        $(
            $(#[doc = $section_doc:literal])+
            [$section:ident] pub struct $keys:ident {
                $(
                    $(#[doc = $inner_doc:literal])+
                    $inner:ident: $inner_type:ty = $inner_default:expr, $inner_format:expr;
                )+
            }
        )+
    ) => {
        $(#[doc = $job_doc])+
        #[derive(Clone, Debug, PartialEq)]
        pub struct $job {
            $($(#[doc = $doc])+ pub $key: $type,)+
            $($(#[doc = $section_doc])+ pub $section: $keys,)+
        }

        impl Default for $job {
            fn default() -> Self {
                Self { $($key: $default,)+ $($section: $keys::default(),)+ }
            }
        }

        $(
            $(#[doc = $section_doc])+
            #[derive(Clone, Debug, PartialEq)]
            pub struct $keys {
                $($(#[doc = $inner_doc])+ pub $inner: $inner_type,)+
            }

            impl Default for $keys {
                fn default() -> Self {
                    Self { $($inner: $inner_default,)+ }
                }
            }
        )+

        /// All keys, in the order of the table.
        const KEYS: &[JobKey] = &[
            $(job_key!(stringify!($key), ($key), $type, $format, $($doc)+),)+
            $($(job_key!(
                concat!(stringify!($section), ".", stringify!($inner)),
                ($section.$inner), $inner_type, $inner_format, $($inner_doc)+
            ),)+)+
        ];
    };
}

pub(super) use {job_key, job_keys};

impl JobKey {
    /// The table that has the key, empty for the root table, and its name there.
    fn split(&self) -> (&'static str, &'static str) {
        self.name.split_once('.').unwrap_or(("", self.name))
    }
}

/// The names that a table knows; the root table also knows the other tables.
fn names_in(table: &str) -> Vec<&'static str> {
    let mut names: Vec<&str> = KEYS
        .iter()
        .filter_map(|key| match key.split() {
            ("", name) => table.is_empty().then_some(name),
            (outer, _) if table.is_empty() => Some(outer),
            (outer, name) => (outer == table).then_some(name),
        })
        .collect();
    names.dedup();
    names
}

/// The form of a `job.toml`.
pub(super) fn form() -> Vec<FormKey> {
    let defaults = Job::default();
    let leaf = |key: &JobKey| FormKey {
        name: key.split().1,
        meaning: format!("{} Allowed: {}.", key.sentence, (key.allowed)()),
        default: Some((key.show)(&defaults)),
        need: KeyNeed::Optional,
        form: (key.form)(),
    };
    let keys_in = |table: &str| -> Vec<FormKey> {
        let inner = KEYS.iter().filter(|key| key.split().0 == table);
        inner.map(leaf).collect()
    };
    let section = |name: &&'static str| FormKey {
        name,
        meaning: format!("The keys of [{name}]."),
        default: None,
        need: KeyNeed::Optional,
        form: ValueForm::Table(keys_in(name)),
    };
    let plain = keys_in("");
    let names = names_in("").into_iter();
    let tables: Vec<&str> = names
        .filter(|name| plain.iter().all(|key| key.name != *name))
        .collect();
    plain
        .iter()
        .cloned()
        .chain(tables.iter().map(section))
        .collect()
}

/// Stores all values of a `job.toml` in `job`; returns the names of their keys.
pub(super) fn read(job: &mut Job, text: &str) -> Result<BTreeSet<String>, TomlError> {
    let document = spanned::parse(text)?;
    let root = TomlTable::root(text, &document);
    root.only(&names_in(""))?;
    let mut written = BTreeSet::new();
    let mut current = ("", Some(root.clone()));
    for key in KEYS {
        let (table, name) = key.split();
        if table != current.0 {
            current = (table, root.table(table)?);
            if let Some(inner) = &current.1 {
                inner.only(&names_in(table))?;
            }
        }
        if let Some(entry) = current.1.as_ref().and_then(|table| table.get(name)) {
            let done = (key.set)(job, entry.value);
            done.ok_or_else(|| entry.refused(&(key.allowed)()))?;
            written.insert(key.name.to_owned());
        }
    }
    Ok(written)
}

/// Stores one value under a dotted key: as TOML where `text` is TOML, else as a string.
pub(super) fn set(job: &mut Job, key: &str, text: &str) -> Result<(), TomlProblem> {
    let (value, given) = match DeValue::parse(text) {
        Ok(value) => (value.into_inner(), text.to_owned()),
        Err(_) => (DeValue::String(text.into()), quoted(text)),
    };
    let refused = |allowed| TomlProblem::Value {
        key: key.to_owned(),
        given,
        allowed,
    };
    match KEYS.iter().find(|known| known.name == key) {
        Some(known) => (known.set)(job, &value).ok_or_else(|| refused((known.allowed)())),
        None if names_in("").contains(&key) => Err(refused(format!("a table, [{key}]"))),
        None => Err(unknown(key)),
    }
}

fn unknown(key: &str) -> TomlProblem {
    let (table, name) = key.split_once('.').unwrap_or(("", key));
    match (names_in(table), table) {
        (known, "") => TomlProblem::unknown(name, ROOT, &known),
        (known, _) if known.is_empty() => TomlProblem::unknown(table, ROOT, &names_in("")),
        (known, _) => TomlProblem::unknown(name, &format!("[{table}]"), &known),
    }
}

/// Writes a job, with `remark` after each line.
pub(super) fn write(job: &Job, remark: impl Fn(&JobKey) -> &'static str) -> String {
    let mut text = String::new();
    let mut current = "";
    for key in KEYS {
        let (table, name) = key.split();
        if table != current {
            let _ = write!(text, "\n[{table}]\n");
            current = table;
        }
        let _ = writeln!(text, "{name} = {}{}", (key.show)(job), remark(key));
    }
    text
}
