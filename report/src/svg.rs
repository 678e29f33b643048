//! Pictures as text: SVG that stands in a page and needs no other file.
//!
//! A [`Drawing`] takes shapes in pixels. A [`Scale`] turns values into pixels and knows where its
//! ticks are. How a picture looks (fonts, greys) is in the style of the page; see [`super::html`].

use std::fmt::Write as _;

/// A picture that is being drawn.
#[derive(Clone, Debug)]
pub struct Drawing {
    width: f64,
    height: f64,
    body: String,
}

/// Where a text begins at its point.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Anchor {
    /// The text is to the right of the point.
    Start,
    /// The point is in the middle.
    Middle,
    /// The text is to the left of the point.
    End,
}

impl Drawing {
    /// An empty picture.
    pub fn new(width: f64, height: f64) -> Self {
        Self {
            width,
            height,
            body: String::new(),
        }
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        self.body.write_fmt(text).expect("text takes text");
        self.body.push('\n');
    }

    /// A straight line; `style` is its attributes.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), style: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.put(format_args!(
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" {style}/>"#
        ));
    }

    /// A line through points.
    pub fn path(&mut self, points: &[(f64, f64)], style: &str) {
        let points = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}"));
        let points: Vec<String> = points.collect();
        self.put(format_args!(
            r#"<polyline points="{}" fill="none" {style}/>"#,
            points.join(" ")
        ));
    }

    /// A rectangle at its upper left corner, with `told` shown under the pointer.
    pub fn area(&mut self, at: (f64, f64), size: (f64, f64), style: &str, told: &str) {
        let ((x, y), (width, height)) = (at, size);
        let (told, at) = (title(told), format!(r#"x="{x:.1}" y="{y:.1}""#));
        self.put(format_args!(
            r#"<rect {at} width="{width:.1}" height="{height:.1}" {style}>{told}</rect>"#
        ));
    }

    /// A disc, with `told` shown under the pointer.
    pub fn disc(&mut self, at: (f64, f64), radius: f64, style: &str, told: &str) {
        let ((x, y), told) = (at, title(told));
        self.put(format_args!(
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="{radius:.1}" {style}>{told}</circle>"#
        ));
    }

    /// A text; `class` is of the page's style.
    pub fn text(&mut self, at: (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let ((x, y), text) = (at, escaped(text));
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.put(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" class="{class}">{text}</text>"#
        ));
    }

    /// A text from below upwards, for the title of an upright axis.
    pub fn upright_text(&mut self, at: (f64, f64), class: &str, text: &str) {
        let ((x, y), text) = (at, escaped(text));
        let turned = format!(r#"transform="translate({x:.1} {y:.1}) rotate(-90)""#);
        self.put(format_args!(
            r#"<text {turned} text-anchor="middle" class="{class}">{text}</text>"#
        ));
    }

    /// The picture as an element of a page; `label` describes it for readers who cannot see it.
    pub fn element(&self, label: &str) -> String {
        let (width, height, label) = (self.width, self.height, escaped(label));
        format!(
            "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             role=\"img\" aria-label=\"{label}\">\n{}</svg>\n",
            self.body
        )
    }
}

fn title(told: &str) -> String {
    if told.is_empty() {
        return String::new();
    }
    format!("<title>{}</title>", escaped(told))
}

/// Text with HTML's special characters escaped.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            letter => safe.push(letter),
        }
    }
    safe
}

/// How values lie along an axis.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Spacing {
    /// Equal differences are equally far apart.
    Linear,
    /// Equal ratios are equally far apart; values are positive.
    Logarithmic,
}

/// From values to pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    spacing: Spacing,
    values: (f64, f64),
    pixels: (f64, f64),
}

impl Scale {
    /// A linear scale over `values`.
    pub fn linear(values: (f64, f64), pixels: (f64, f64)) -> Self {
        let (low, high) = values;
        Self {
            spacing: Spacing::Linear,
            values: (low, if high > low { high } else { low + 1.0 }),
            pixels,
        }
    }

    /// A scale over positive `values`: logarithmic where they differ by a factor above 20.
    pub fn fitting(values: (f64, f64), pixels: (f64, f64)) -> Self {
        let (low, high) = values;
        if low > 0.0 && high / low > 20.0 {
            return Self {
                spacing: Spacing::Logarithmic,
                values,
                pixels,
            };
        }
        Self::linear(values, pixels)
    }

    /// The pixel of a value.
    pub fn at(&self, value: f64) -> f64 {
        let (low, high) = self.values;
        let share = match self.spacing {
            Spacing::Linear => (value - low) / (high - low),
            Spacing::Logarithmic => (value.max(low) / low).ln() / (high / low).ln(),
        };
        self.pixels.0 + share.clamp(0.0, 1.0) * (self.pixels.1 - self.pixels.0)
    }

    /// Values for marks along the axis, about this many: 1, 2 or 5 times a power of ten.
    pub fn ticks(&self, about: usize) -> Vec<f64> {
        let (low, high) = self.values;
        match self.spacing {
            Spacing::Linear => {
                let step = round_step((high - low) / about.max(1) as f64);
                let first = (low / step - 1e-9).ceil() as i64;
                let last = (high / step + 1e-9).floor() as i64;
                (first..=last).map(|tick| tick as f64 * step).collect()
            }
            Spacing::Logarithmic => {
                let decades = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
                let within: &[f64] = match (high / low).log10() {
                    few if few <= about as f64 / 3.0 => &[1.0, 2.0, 5.0],
                    _ => &[1.0],
                };
                let ticks = decades
                    .flat_map(|decade| within.iter().map(move |digit| digit * 10_f64.powi(decade)));
                ticks.filter(|tick| (low..=high).contains(tick)).collect()
            }
        }
    }
}

/// The least of 1, 2 and 5 times a power of ten that is not below `step`.
fn round_step(step: f64) -> f64 {
    let power = 10_f64.powf(step.max(1e-12).log10().floor());
    let digit = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|digit| digit * power >= step * 0.999);
    digit.unwrap_or(10.0) * power
}

/// A number for an axis: as few digits as tell it.
pub fn number(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        large if large >= 1e9 => (value / 1e9, "G"),
        large if large >= 1e6 => (value / 1e6, "M"),
        large if large >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{scaled:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_scale() {
        let scale = Scale::linear((0.0, 230.0), (0.0, 100.0));
        assert_eq!(scale.ticks(5), [0.0, 50.0, 100.0, 150.0, 200.0]);
        let scale = Scale::fitting((3.0, 4_000.0), (0.0, 100.0));
        assert_eq!(scale.ticks(5), [10.0, 100.0, 1_000.0]);
        assert_eq!(scale.at(3.0), 0.0);
        assert!((scale.at(4_000.0) - 100.0).abs() < 1e-9);
    }

    #[test]
    fn a_scale_of_one_value_is_still_a_scale() {
        let scale = Scale::linear((5.0, 5.0), (0.0, 10.0));
        assert_eq!(scale.at(5.0), 0.0);
        assert!(!scale.ticks(4).is_empty());
    }

    #[test]
    fn names_cannot_break_the_page() {
        let mut drawing = Drawing::new(10.0, 10.0);
        drawing.text((0.0, 0.0), Anchor::Start, "label", "<b> & \"c\"");
        assert!(
            drawing
                .element("x")
                .contains("&lt;b&gt; &amp; &quot;c&quot;")
        );
    }

    #[test]
    fn numbers_of_an_axis_are_short() {
        let texts = [0.0, 0.25, 200.0, 9_500.0, 20_000.0, 1.5e6].map(number);
        assert_eq!(texts, ["0", "0.25", "200", "9500", "20k", "1.5M"]);
    }
}
