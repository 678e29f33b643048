//! How the values of keys are written in `job.toml`: one [`KeyFormat`] per kind of value, which
//! also knows the allowed range.

use core::net::SocketAddr;
use std::fmt::Display;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::str::FromStr;

use strum::VariantNames;
use toml::Value;
use toml::de::DeValue;

use super::form::ValueForm;
use super::notation;
use super::redundancy::RedundancyTerms;
use super::values::{AlgorithmChoice, Checksum};
use crate::priority::UntaggedTraffic;
use crate::units::{ByteCount, Dscp, Rank, Share, Span};

/// How the value of a key is written.
pub(super) trait KeyFormat {
    /// The type of the value.
    type Value;
    /// The value, if it is allowed.
    fn read(&self, value: &DeValue<'_>) -> Option<Self::Value>;
    /// The value as TOML.
    fn show(&self, value: &Self::Value) -> String;
    /// The allowed values, as errors and `gradwire job keys` show them.
    fn allowed(&self) -> String;
    /// The form of the value, for editors.
    fn form(&self) -> ValueForm;
}

/// A string as TOML.
pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn integer(value: &DeValue<'_>) -> Option<i64> {
    let number = value.as_integer()?;
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}

fn float(value: &DeValue<'_>) -> Option<f64> {
    match value.as_float() {
        Some(number) => number.as_str().parse().ok(),
        None => integer(value).map(|number| number as f64),
    }
}

/// A share: a number from 0 to 1, or a percentage in quotes.
pub(super) struct AnyShare;

impl KeyFormat for AnyShare {
    type Value = Share;
    fn read(&self, value: &DeValue<'_>) -> Option<Share> {
        match value.as_str() {
            Some(text) => notation::share(text),
            None => Share::new(float(value)?),
        }
    }
    fn show(&self, value: &Share) -> String {
        quoted(&notation::show_share(*value))
    }
    fn allowed(&self) -> String {
        "0 to 1, or \"0%\" to \"100%\"".to_owned()
    }
    fn form(&self) -> ValueForm {
        ValueForm::share()
    }
}

/// A size within a range.
pub(super) struct Size(pub(super) RangeInclusive<ByteCount>);

impl KeyFormat for Size {
    type Value = ByteCount;
    fn read(&self, value: &DeValue<'_>) -> Option<ByteCount> {
        let size = match value.as_str() {
            Some(text) => notation::size(text)?,
            None => ByteCount::new(u64::try_from(integer(value)?).ok()?),
        };
        self.0.contains(&size).then_some(size)
    }
    fn show(&self, value: &ByteCount) -> String {
        quoted(&value.to_string())
    }
    fn allowed(&self) -> String {
        let (least, most) = (self.0.start(), self.0.end());
        format!("\"{least}\" to \"{most}\", or a number of bytes")
    }
    fn form(&self) -> ValueForm {
        ValueForm::size()
    }
}

/// A length of time within a range.
pub(super) struct Time(pub(super) RangeInclusive<Span>);

impl KeyFormat for Time {
    type Value = Span;
    fn read(&self, value: &DeValue<'_>) -> Option<Span> {
        notation::span(value.as_str()?).filter(|span| self.0.contains(span))
    }
    fn show(&self, value: &Span) -> String {
        quoted(&notation::show_span(*value))
    }
    fn allowed(&self) -> String {
        let (least, most) = (self.0.start(), self.0.end());
        let (least, most) = (notation::show_span(*least), notation::show_span(*most));
        format!("\"{least}\" to \"{most}\", with a unit of s, ms, us or ns")
    }
    fn form(&self) -> ValueForm {
        ValueForm::span()
    }
}

/// A whole number within a range.
pub(super) struct Whole<T>(RangeInclusive<u64>, PhantomData<T>);

pub(super) fn whole<T>(range: RangeInclusive<u64>) -> Whole<T> {
    Whole(range, PhantomData)
}

impl<T: TryFrom<u64> + Display> KeyFormat for Whole<T> {
    type Value = T;
    fn read(&self, value: &DeValue<'_>) -> Option<T> {
        let number = u64::try_from(integer(value)?).ok()?;
        T::try_from(number)
            .ok()
            .filter(|_| self.0.contains(&number))
    }
    fn show(&self, value: &T) -> String {
        value.to_string()
    }
    fn allowed(&self) -> String {
        format!("whole numbers from {} to {}", self.0.start(), self.0.end())
    }
    fn form(&self) -> ValueForm {
        ValueForm::Whole(self.0.clone())
    }
}

/// A number within a range.
pub(super) struct Decimal(pub(super) RangeInclusive<f64>);

impl KeyFormat for Decimal {
    type Value = f64;
    fn read(&self, value: &DeValue<'_>) -> Option<f64> {
        float(value).filter(|number| self.0.contains(number))
    }
    fn show(&self, value: &f64) -> String {
        format!("{value:?}")
    }
    fn allowed(&self) -> String {
        format!("numbers from {} to {}", self.0.start(), self.0.end())
    }
    fn form(&self) -> ValueForm {
        ValueForm::Decimal(self.0.clone())
    }
}

/// One of the names of an enum's variants.
pub(super) struct OneOf<T>(PhantomData<T>);

pub(super) fn one_of<T>() -> OneOf<T> {
    OneOf(PhantomData)
}

impl<T: FromStr + VariantNames + Copy + Into<&'static str>> KeyFormat for OneOf<T> {
    type Value = T;
    fn read(&self, value: &DeValue<'_>) -> Option<T> {
        value.as_str()?.parse().ok()
    }
    fn show(&self, value: &T) -> String {
        quoted((*value).into())
    }
    fn allowed(&self) -> String {
        let names: Vec<String> = T::VARIANTS.iter().map(|name| quoted(name)).collect();
        names.join(", ")
    }
    fn form(&self) -> ValueForm {
        ValueForm::Words(T::VARIANTS.to_vec())
    }
}

/// A value, or a word for its absence.
pub(super) struct Or<F, T>(&'static str, F, PhantomData<T>);

pub(super) fn or<F, T>(word: &'static str, format: F) -> Or<F, T> {
    Or(word, format, PhantomData)
}

impl<F: KeyFormat, T> KeyFormat for Or<F, T>
where
    T: From<Option<F::Value>> + Clone + Into<Option<F::Value>>,
{
    type Value = T;
    fn read(&self, value: &DeValue<'_>) -> Option<T> {
        let is_absent = value.as_str() == Some(self.0);
        let value = if is_absent {
            None
        } else {
            Some(self.1.read(value)?)
        };
        Some(T::from(value))
    }
    fn show(&self, value: &T) -> String {
        let value: Option<F::Value> = value.clone().into();
        value.map_or_else(|| quoted(self.0), |value| self.1.show(&value))
    }
    fn allowed(&self) -> String {
        format!("\"{}\", {}", self.0, self.1.allowed())
    }
    fn form(&self) -> ValueForm {
        self.1.form().or_word(self.0)
    }
}

/// A list with a range of lengths.
pub(super) struct List<F> {
    pub(super) entry: F,
    pub(super) count: RangeInclusive<usize>,
    pub(super) allowed: &'static str,
}

impl<F: KeyFormat> KeyFormat for List<F> {
    type Value = Vec<F::Value>;
    fn read(&self, value: &DeValue<'_>) -> Option<Vec<F::Value>> {
        let list = value.as_array()?;
        let entries = list.iter().map(|entry| self.entry.read(entry.get_ref()));
        entries
            .collect::<Option<Vec<_>>>()
            .filter(|_| self.count.contains(&list.len()))
    }
    fn show(&self, value: &Vec<F::Value>) -> String {
        let entries: Vec<String> = value.iter().map(|entry| self.entry.show(entry)).collect();
        format!("[{}]", entries.join(", "))
    }
    fn allowed(&self) -> String {
        self.allowed.to_owned()
    }
    fn form(&self) -> ValueForm {
        ValueForm::List(Box::new(self.entry.form()), self.count.clone())
    }
}

/// A format that only one key has.
pub(super) struct Single<T> {
    read: fn(&DeValue<'_>) -> Option<T>,
    show: fn(&T) -> String,
    allowed: &'static str,
    form: fn() -> ValueForm,
}

impl<T> KeyFormat for Single<T> {
    type Value = T;
    fn read(&self, value: &DeValue<'_>) -> Option<T> {
        (self.read)(value)
    }
    fn show(&self, value: &T) -> String {
        (self.show)(value)
    }
    fn allowed(&self) -> String {
        self.allowed.to_owned()
    }
    fn form(&self) -> ValueForm {
        (self.form)()
    }
}

/// Whether a word has 1 to 64 plain characters.
fn is_plain(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=64).contains(&word.len()) && word.chars().all(plain)
}

pub(super) const NAME: Single<String> = Single {
    read: |value| {
        let name = value.as_str().filter(|name| is_plain(name));
        name.map(str::to_owned)
    },
    show: |name| quoted(name),
    allowed: "1 to 64 letters, digits and -_. in quotes",
    form: || ValueForm::Text("^[A-Za-z0-9._-]{1,64}$"),
};

/// Names with commas between them; `"auto"` is the empty list.
pub(super) const DEVICES: Single<Vec<String>> = Single {
    read: |value| {
        let text = value.as_str()?;
        if text == "auto" {
            return Some(Vec::new());
        }
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        let are_names = names.iter().all(|name| is_plain(name) && name != "auto");
        are_names.then_some(names)
    },
    show: |names| match names.as_slice() {
        [] => quoted("auto"),
        names => quoted(&names.join(",")),
    },
    allowed: "\"auto\", or names with commas between them",
    form: || ValueForm::Text(r"^[A-Za-z0-9._\s,-]+$"),
};

pub(super) const ON_OFF: Single<Checksum> = Single {
    read: |value| match value.as_bool()? {
        true => Some(Checksum::On),
        false => Some(Checksum::Off),
    },
    show: |checksum| (*checksum == Checksum::On).to_string(),
    allowed: "true, false",
    form: || ValueForm::Flag,
};

/// The shares of a link that others may be given: whole percents, since switches write such.
const OTHERS_PERCENT: RangeInclusive<u32> = 1..=90;

pub(super) const UNTAGGED: Single<UntaggedTraffic> = Single {
    read: |value| match value.as_str() {
        Some("share") => Some(UntaggedTraffic::Shares),
        Some("below") => Some(UntaggedTraffic::Below),
        _ => {
            let share = AnyShare.read(value)?;
            let percent = share.whole_percent()?;
            OTHERS_PERCENT
                .contains(&percent)
                .then_some(UntaggedTraffic::Weighted(share))
        }
    },
    show: |untagged| match untagged {
        UntaggedTraffic::Shares => quoted("share"),
        UntaggedTraffic::Below => quoted("below"),
        UntaggedTraffic::Weighted(share) => AnyShare.show(share),
    },
    allowed: "\"share\", \"below\", or \"1%\" to \"90%\" in whole percents",
    form: || ValueForm::share().or_word("below").or_word("share"),
};

pub(super) const DSCP: Single<Dscp> = Single {
    read: |value| whole::<u8>(0..=63).read(value).map(Dscp),
    show: Dscp::to_string,
    allowed: "whole numbers from 0 to 63",
    form: || ValueForm::Whole(0..=63),
};

pub(super) const CHOICE: Single<AlgorithmChoice> = Single {
    read: |value| notation::choice(value.as_str()?),
    show: |choice| quoted(&notation::show_choice(*choice)),
    allowed: "a text such as \"4 256KiB direct\"",
    form: || ValueForm::Text(r"^\s*[0-9]+\s+[0-9.]+[A-Za-z]*\s+[a-z-]+\s*$"),
};

pub(super) const CODE: Single<RedundancyTerms> = Single {
    read: |value| value.as_str()?.parse().ok(),
    show: |terms| quoted(&terms.to_string()),
    allowed: "\"mbr:n,k,d\" or \"msr:n,k,d\" with 1 <= k <= d < n <= 32, for msr 2k - 2 <= d, \
              or \"rs:n,k\" with 1 <= k < n <= 32",
    form: || ValueForm::Text(r"^(mbr|msr):[0-9]+,[0-9]+,[0-9]+$|^rs:[0-9]+,[0-9]+$"),
};

pub(super) const SOCKET: Single<SocketAddr> = Single {
    read: |value| {
        value
            .as_str()?
            .parse()
            .ok()
            .filter(|at: &SocketAddr| at.port() > 0)
    },
    show: |address| quoted(&address.to_string()),
    allowed: "an IP address with a port, such as \"10.0.0.9:4700\" or \"[fd00::9]:4700\"",
    form: || ValueForm::Text(r"^(none|[0-9.]+:[0-9]+|\[[0-9a-fA-F:.]+\]:[0-9]+)$"),
};

pub(super) const PAIR: Single<(Rank, Rank)> = Single {
    read: |value| notation::pair(value.as_str()?),
    show: |pair| quoted(&notation::show_pair(*pair)),
    allowed: "a text such as \"0->1\"",
    form: || ValueForm::Text(r"^\s*[0-9]+\s*->\s*[0-9]+\s*$"),
};
