//! Two kinds of picture as SVG text: groups of bars, and panels of lines. Nothing else is needed, and a plotting library would bring
//! fonts and rasterisers for it.

use std::fmt::Write as _;

const FONT: &str = "font-family=\"Helvetica, Arial, sans-serif\"";
/// The first colour is osmill's.
const COLOURS: [&str; 8] = [
    "#1f6fb4", "#c9772b", "#8a8f98", "#5a9e5a", "#a0548c", "#b8a12e", "#4c4f57", "#56b0b8",
];
const INK: &str = "#222222";
const FAINT: &str = "#d8dbe0";

/// The colour of the series at `index`.
pub fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// A picture being drawn.
struct Canvas {
    width: f64,
    height: f64,
    body: String,
}

impl Canvas {
    fn new(width: f64, height: f64) -> Self {
        Self {
            width,
            height,
            body: String::new(),
        }
    }

    fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, fill: &str) {
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"/>"
        );
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str, width: f64) {
        let _ = writeln!(
            self.body,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{stroke}\" stroke-width=\"{width}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    fn polyline(&mut self, points: &[(f64, f64)], stroke: &str) {
        let list: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            self.body,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"1.8\" stroke-linejoin=\"round\"/>",
            list.join(" ")
        );
    }

    fn dot(&mut self, at: (f64, f64), fill: &str) {
        let _ = writeln!(
            self.body,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.6\" fill=\"{fill}\"/>",
            at.0, at.1
        );
    }

    /// `anchor`: start, middle or end.
    fn text(&mut self, at: (f64, f64), size: f64, anchor: &str, fill: &str, text: &str) {
        let _ = writeln!(
            self.body,
            "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{fill}\" {FONT}>{}</text>",
            at.0,
            at.1,
            escape(text)
        );
    }

    fn finish(self) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w:.0} {h:.0}\" width=\"{w:.0}\" height=\"{h:.0}\">\n\
             <rect width=\"{w:.0}\" height=\"{h:.0}\" fill=\"#ffffff\"/>\n{body}</svg>\n",
            w = self.width,
            h = self.height,
            body = self.body
        )
    }
}

/// A legend in one line; returns the y below it.
fn legend(canvas: &mut Canvas, y: f64, series: &[String]) -> f64 {
    let mut x = 16.0;
    for (index, name) in series.iter().enumerate() {
        canvas.rect(x, y - 9.0, 11.0, 11.0, colour(index));
        canvas.text((x + 16.0, y), 12.0, "start", INK, name);
        x += 40.0 + 7.0 * name.chars().count() as f64;
    }
    y + 16.0
}

/// One bar of a group.
#[derive(Debug, Clone)]
pub struct Bar {
    /// Index into the series.
    pub series: usize,
    /// Length.
    pub value: f64,
    /// Text at its end.
    pub label: String,
}

/// Groups of horizontal bars. Each group has a scale of its own, its longest bar being full: groups of milliseconds and
/// groups of minutes can be read side by side, and the labels say the numbers.
pub fn bars(title: &str, series: &[String], groups: &[(String, Vec<Bar>)]) -> String {
    const BAR: f64 = 14.0;
    const GAP: f64 = 12.0;
    const FULL: f64 = 430.0;
    let longest_name = groups.iter().map(|(name, _)| name.chars().count()).max();
    let left = 30.0 + 6.6 * longest_name.unwrap_or(0).max(12) as f64;
    let rows: usize = groups.iter().map(|(_, bars)| bars.len()).sum();
    let height = 62.0 + rows as f64 * BAR + groups.len() as f64 * GAP + 8.0;
    let mut canvas = Canvas::new(left + FULL + 190.0, height);
    canvas.text((16.0, 22.0), 15.0, "start", INK, title);
    let mut y = legend(&mut canvas, 44.0, series);
    for (name, bars) in groups {
        let longest = bars
            .iter()
            .map(|bar| bar.value)
            .fold(0.0, f64::max)
            .max(f64::MIN_POSITIVE);
        let middle = y + bars.len() as f64 * BAR / 2.0 + 4.0;
        canvas.text((left - 10.0, middle), 12.0, "end", INK, name);
        for bar in bars {
            let length = (bar.value / longest * FULL).max(1.0);
            canvas.rect(left, y + 1.0, length, BAR - 2.0, colour(bar.series));
            canvas.text(
                (left + length + 6.0, y + BAR - 3.5),
                11.0,
                "start",
                INK,
                &bar.label,
            );
            y += BAR;
        }
        canvas.line((left, y + GAP / 2.0), (left + FULL, y + GAP / 2.0), FAINT, 0.6);
        y += GAP;
    }
    canvas.finish()
}

/// How an axis maps values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// From zero.
    Linear,
    /// By powers.
    Logarithmic,
}

/// A line of a panel.
#[derive(Debug, Clone)]
pub struct Curve {
    /// Index into the series.
    pub series: usize,
    /// Points by rising x.
    pub points: Vec<(f64, f64)>,
    /// Added to the panel's legend, such as a fitted exponent; may be empty.
    pub note: String,
}

/// One panel.
#[derive(Debug, Clone)]
pub struct Panel {
    /// Its name.
    pub title: String,
    /// The lines.
    pub curves: Vec<Curve>,
}

/// What the axes of all panels are.
#[derive(Debug, Clone, Copy)]
pub struct Axes<'a> {
    /// Name of x with its unit.
    pub x: &'a str,
    /// Name of y with its unit.
    pub y: &'a str,
    /// Mapping of x.
    pub x_scale: Scale,
    /// Mapping of y.
    pub y_scale: Scale,
    /// Whether points are marked.
    pub dots: bool,
}

/// A range of values on one axis and its place in the picture.
struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(scale: Scale, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (mut low, mut high) = (f64::INFINITY, 0.0f64);
        for value in values.filter(|value| value.is_finite()) {
            if scale == Scale::Linear || value > 0.0 {
                low = low.min(value);
                high = high.max(value);
            }
        }
        if scale == Scale::Linear {
            low = 0.0;
            high *= 1.08;
        } else {
            low /= 1.25;
            high *= 1.25;
        }
        if !low.is_finite() || high <= low {
            (low, high) = (if scale == Scale::Linear { 0.0 } else { 0.1 }, 1.0);
        }
        Self {
            scale,
            low,
            high,
            from,
            to,
        }
    }

    fn at(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Logarithmic => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
        };
        self.from + share * (self.to - self.from)
    }

    /// Round values: three to five on a linear axis; 1, 2, 5 or powers of ten on a logarithmic one.
    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                let rough = self.high / 4.0;
                let power = 10f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
                let step = step.into_iter().find(|step| *step >= rough).unwrap_or(power);
                (0..)
                    .map(|index| f64::from(index) * step)
                    .take_while(|value| *value <= self.high)
                    .collect()
            }
            Scale::Logarithmic => {
                let decades = (self.high / self.low).log10();
                let factors: &[f64] = if decades > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
                let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
                (first..=last)
                    .flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)))
                    .filter(|value| *value >= self.low && *value <= self.high)
                    .collect()
            }
        }
    }
}

/// A number with as few characters as it needs.
pub fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = match scaled.abs() {
        size if size >= 100.0 || size == 0.0 => format!("{scaled:.0}"),
        size if size >= 10.0 => format!("{scaled:.1}"),
        size if size >= 1.0 => format!("{scaled:.2}"),
        _ => format!("{scaled:.3}"),
    };
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    format!("{text}{unit}")
}

/// Panels of lines, three in a row, all with the same axes' names and each with ranges of its own.
pub fn panels(title: &str, series: &[String], axes: &Axes<'_>, panels: &[Panel]) -> String {
    const WIDTH: f64 = 320.0;
    const HEIGHT: f64 = 225.0;
    const COLUMNS: usize = 3;
    let columns = COLUMNS.min(panels.len().max(1));
    let rows = panels.len().div_ceil(columns).max(1);
    let mut canvas = Canvas::new(16.0 + WIDTH * columns.max(2) as f64, 60.0 + HEIGHT * rows as f64);
    canvas.text((16.0, 22.0), 15.0, "start", INK, title);
    let top = legend(&mut canvas, 44.0, series);
    for (index, panel) in panels.iter().enumerate() {
        let left = 8.0 + WIDTH * (index % columns) as f64;
        let top = top + HEIGHT * (index / columns) as f64;
        draw(&mut canvas, (left, top), (WIDTH, HEIGHT), axes, panel);
    }
    canvas.finish()
}

fn draw(
    canvas: &mut Canvas,
    (left, top): (f64, f64),
    (width, height): (f64, f64),
    axes: &Axes<'_>,
    panel: &Panel,
) {
    let (x0, x1) = (left + 52.0, left + width - 14.0);
    let (y0, y1) = (top + height - 46.0, top + 24.0);
    let all = || panel.curves.iter().flat_map(|curve| curve.points.iter().copied());
    let x = Axis::new(axes.x_scale, all().map(|point| point.0), x0, x1);
    let y = Axis::new(axes.y_scale, all().map(|point| point.1), y0, y1);
    canvas.text((x0, top + 14.0), 12.5, "start", INK, &panel.title);
    for tick in y.ticks() {
        canvas.line((x0, y.at(tick)), (x1, y.at(tick)), FAINT, 0.6);
        canvas.text((x0 - 5.0, y.at(tick) + 3.5), 10.0, "end", INK, &short(tick));
    }
    for tick in x.ticks() {
        canvas.line((x.at(tick), y0), (x.at(tick), y0 + 4.0), INK, 0.8);
        canvas.text((x.at(tick), y0 + 15.0), 10.0, "middle", INK, &short(tick));
    }
    canvas.line((x0, y0), (x1, y0), INK, 0.8);
    canvas.line((x0, y0), (x0, y1), INK, 0.8);
    canvas.text((x1, y0 + 28.0), 10.0, "end", INK, axes.x);
    canvas.text((x1, top + 14.0), 10.0, "end", INK, axes.y);
    let mut note_x = x0;
    for curve in &panel.curves {
        let points: Vec<(f64, f64)> = curve
            .points
            .iter()
            .map(|point| (x.at(point.0), y.at(point.1)))
            .collect();
        canvas.polyline(&points, colour(curve.series));
        if axes.dots {
            points
                .iter()
                .for_each(|&point| canvas.dot(point, colour(curve.series)));
        }
        // Few points carry their values; many are read off the axes.
        if axes.dots && points.len() <= 4 {
            for (&(x, y), (_, value)) in points.iter().zip(&curve.points) {
                canvas.text((x, y - 6.0), 9.5, "middle", colour(curve.series), &short(*value));
            }
        }
        if !curve.note.is_empty() {
            canvas.text(
                (note_x, y0 + 28.0),
                10.0,
                "start",
                colour(curve.series),
                &curve.note,
            );
            note_x += 10.0 + 5.6 * curve.note.chars().count() as f64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let cases = [
            (0.0, "0"),
            (0.05, "0.05"),
            (1.0, "1"),
            (2.5, "2.5"),
            (100.0, "100"),
            (12_300.0, "12.3k"),
            (1e6, "1M"),
            (2.5e9, "2.5G"),
            (200.0, "200"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn pictures_are_well_formed_whatever_the_names() {
        let series = ["a & b".to_owned(), "<c>".to_owned()];
        let bar = |value| Bar {
            series: 1,
            value,
            label: "1 < 2".to_owned(),
        };
        let picture = bars("t", &series, &[("x\"y".to_owned(), vec![bar(0.0), bar(2.0)])]);
        assert!(picture.contains("a &amp; b") && picture.contains("&lt;c&gt;") && !picture.contains("1 < 2"));
        let axes = Axes {
            x: "x",
            y: "y",
            x_scale: Scale::Logarithmic,
            y_scale: Scale::Linear,
            dots: true,
        };
        let empty = Panel {
            title: "none".to_owned(),
            curves: Vec::new(),
        };
        let one = Panel {
            title: "one".to_owned(),
            curves: vec![Curve {
                series: 0,
                points: vec![(5.0, 0.0)],
                note: String::new(),
            }],
        };
        let picture = panels("t", &series, &axes, &[empty, one]);
        assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
        assert_eq!(picture.matches("<svg").count(), 1);
    }

    #[test]
    fn ticks_are_few_and_inside() {
        for (scale, low, high) in [
            (Scale::Linear, 0.0, 7.3),
            (Scale::Logarithmic, 80.0, 2500.0),
            (Scale::Logarithmic, 1e3, 1e9),
        ] {
            let axis = Axis::new(scale, [low, high].into_iter(), 0.0, 100.0);
            let ticks = axis.ticks();
            assert!((2..=9).contains(&ticks.len()), "{ticks:?}");
            assert!(
                ticks
                    .iter()
                    .all(|&tick| (-0.01..=100.01).contains(&axis.at(tick)))
            );
        }
    }
}
