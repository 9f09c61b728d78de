//! Figures as SVG, in colours that a page can exchange for a dark background.
//!
//! The library writes each colour as an attribute; a page has a rule for each of [`COLOURS`] and for ink and grid.

use plotters::{
    chart::ChartBuilder,
    element::{Circle, PathElement, TriangleMarker},
    prelude::{IntoDrawingArea, SVGBackend},
    series::{DashedLineSeries, LineSeries},
    style::{Color, IntoFont, RGBColor, ShapeStyle, TextStyle},
};

/// Width and height; a page scales them.
pub(super) const SIZE: (u32, u32) = (640, 380);
/// Width of the axis to the right, and of a letter below it.
const AXIS: usize = 560;
const LETTER: usize = 9;
/// Letters.
pub(super) const FONT: (&str, u32) = ("sans-serif", 17);
/// Text and axes.
pub(super) const INK: RGBColor = RGBColor(0x33, 0x33, 0x31);
pub(super) const GRID: RGBColor = RGBColor(0xDD, 0xDC, 0xD8);
/// Series, in their order: distinct for people who see fewer colours, too, beside shapes and dashes. Each stands out
/// from light paper as WCAG 2.2 asks in 1.4.11; `page.rs` has the test, and the colours for a dark screen.
pub(super) const COLOURS: [RGBColor; 8] = [
    RGBColor(0x28, 0x6D, 0x9F),
    RGBColor(0x28, 0x9F, 0x77),
    RGBColor(0xB8, 0x6E, 0x00),
    RGBColor(0x31, 0x62, 0x18),
    RGBColor(0x25, 0x25, 0x93),
    RGBColor(0xD3, 0x50, 0x5B),
    RGBColor(0xDC, 0x18, 0xAB),
    RGBColor(0xD0, 0x6B, 0x43),
];

/// One value with its interval.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) interval: Option<(f64, f64)>,
}

/// The values of one server.
#[derive(Debug, Clone)]
pub(super) struct Series {
    pub(super) name: String,
    /// Its place in [`COLOURS`].
    pub(super) colour: usize,
    /// Dashes and triangles instead of a line and circles.
    pub(super) dashed: bool,
    /// Points without a line between them.
    pub(super) scattered: bool,
    /// In the order of the line, which has a gap where a value is missing.
    pub(super) points: Vec<Option<Point>>,
}

#[derive(Debug, Clone)]
pub(super) struct Figure {
    pub(super) title: String,
    pub(super) x: String,
    pub(super) y: String,
    /// The axis upwards is logarithmic.
    pub(super) logarithmic: bool,
    /// Names of the places 0, 1, ... to the right; numbers if empty.
    pub(super) names: Vec<String>,
    pub(super) series: Vec<Series>,
}

pub(super) fn colour(place: usize) -> RGBColor {
    let colour = COLOURS.get(place % COLOURS.len());
    colour.copied().unwrap_or(INK)
}

/// The number of letters for which there is room below each of so many places.
pub(super) fn room(places: usize) -> usize {
    AXIS / LETTER / places.max(1)
}

/// A colour as the library writes it.
pub(super) fn text(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

impl Series {
    pub(super) fn has_value(&self) -> bool {
        self.points.iter().any(Option::is_some)
    }
}

impl Figure {
    pub(super) fn has_value(&self) -> bool {
        self.series.iter().any(Series::has_value)
    }

    /// The figure as an SVG element; `None` if there is nothing to show.
    pub(super) fn svg(&self) -> Option<Result<String, String>> {
        self.has_value().then(|| {
            let mut text = String::new();
            self.draw(&mut text).map_err(|error| error.to_string())?;
            Ok(text)
        })
    }

    /// A value on the axis upwards.
    fn up(&self, value: f64) -> f64 {
        match self.logarithmic {
            true => value.max(1e-3).log10(),
            false => value,
        }
    }

    fn ranges(&self) -> ((f64, f64), (f64, f64)) {
        let all = || self.series.iter().flat_map(|series| &series.points);
        let points = || all().flatten();
        let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::NEG_INFINITY, f64::max);
        let right = match self.names.len() {
            0 => (0.0, most(&mut points().map(|p| p.x)) * 1.03),
            names => (-0.5, names as f64 - 0.5),
        };
        let top = most(&mut points().map(|p| self.up(p.interval.map_or(p.y, |(_, high)| high))));
        let bottom = least(&mut points().map(|p| self.up(p.interval.map_or(p.y, |(low, _)| low))));
        let up = match self.logarithmic {
            true => (bottom.floor(), top.ceil().max(bottom.floor() + 1.0)),
            false => (0.0, if top > 0.0 { top * 1.08 } else { 1.0 }),
        };
        (right, up)
    }

    fn draw(&self, into: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let ((left, right), (bottom, top)) = self.ranges();
        let root = SVGBackend::with_string(into, SIZE).into_drawing_area();
        let mut builder = ChartBuilder::on(&root);
        builder
            .margin(10)
            .x_label_area_size(44)
            .y_label_area_size(72);
        let mut chart = builder.build_cartesian_2d(left..right, bottom..top)?;
        let label = TextStyle::from(FONT.into_font()).color(&INK);
        let across = |x: &f64| match self.names.len() {
            0 => number(*x),
            _ => self.name(*x),
        };
        let upwards = |y: &f64| match self.logarithmic {
            true if (y - y.round()).abs() > 1e-6 => String::new(),
            true => number(10_f64.powf(*y)),
            false => number(*y),
        };
        let mut mesh = chart.configure_mesh();
        mesh.disable_x_mesh()
            .bold_line_style(GRID)
            .light_line_style(GRID.mix(0.0))
            .axis_style(INK)
            .label_style(label.clone())
            .axis_desc_style(label)
            .x_desc(&self.x)
            .y_desc(&self.y)
            .x_label_formatter(&across)
            .y_label_formatter(&upwards);
        match self.names.len() {
            0 => mesh.x_labels(9),
            names => mesh.x_labels(names * 2 + 1),
        };
        match self.logarithmic {
            true => mesh.y_labels((top - bottom) as usize + 1),
            false => mesh.y_labels(6),
        };
        mesh.draw()?;
        for series in &self.series {
            self.draw_series(&mut chart, series)?;
        }
        root.present()?;
        Ok(())
    }

    fn name(&self, x: f64) -> String {
        let place = x.round();
        let is_there = (x - place).abs() < 1e-6 && place >= 0.0;
        let name = is_there.then(|| self.names.get(place as usize));
        let name = name.flatten().map_or("", String::as_str);
        // The next one begins where its room ends; tables have the whole names.
        match name.char_indices().nth(room(self.names.len())) {
            Some((end, _)) => format!("{}…", name.get(..end).unwrap_or(name)),
            None => name.to_owned(),
        }
    }

    fn draw_series(
        &self,
        chart: &mut Chart<'_, '_>,
        series: &Series,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let colour = colour(series.colour);
        let line: ShapeStyle = colour.stroke_width(2);
        let place = |point: &Point| (point.x, self.up(point.y));
        for run in series.points.split(Option::is_none) {
            let places: Vec<(f64, f64)> = run.iter().flatten().map(place).collect();
            match (series.scattered, series.dashed) {
                (true, _) => {}
                (false, true) => {
                    chart.draw_series(DashedLineSeries::new(places, 7, 4, line))?;
                }
                (false, false) => {
                    chart.draw_series(LineSeries::new(places, line))?;
                }
            }
        }
        for point in series.points.iter().flatten() {
            if let Some((low, high)) = point.interval {
                let ends = vec![(point.x, self.up(low)), (point.x, self.up(high))];
                chart.draw_series([PathElement::new(ends, colour.stroke_width(1))])?;
            }
        }
        let points = series.points.iter().flatten();
        match series.dashed {
            true => {
                let marks = points.map(|p| TriangleMarker::new(place(p), 5, colour.filled()));
                chart.draw_series(marks)?;
            }
            false => {
                let marks = points.map(|p| Circle::new(place(p), 4, colour.filled()));
                chart.draw_series(marks)?;
            }
        }
        Ok(())
    }
}

type Chart<'a, 'b> = plotters::chart::ChartContext<
    'a,
    SVGBackend<'b>,
    plotters::coord::cartesian::Cartesian2d<
        plotters::coord::types::RangedCoordf64,
        plotters::coord::types::RangedCoordf64,
    >,
>;

/// A number with about three digits; a small one has two that count.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        // The next lower ones are rounded to four digits, which have no comma.
        size if size >= 9_999.5 => {
            let digits = format!("{:.0}", value.abs());
            let mut grouped = String::new();
            for (place, digit) in digits.chars().enumerate() {
                if place > 0 && (digits.len() - place).is_multiple_of(3) {
                    grouped.push(',');
                }
                grouped.push(digit);
            }
            match value < 0.0 {
                true => format!("-{grouped}"),
                false => grouped,
            }
        }
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => trimmed(&format!("{value:.1}")),
        size if size >= 1.0 => trimmed(&format!("{value:.2}")),
        size => {
            let decimals = (1.0 - size.log10().floor()).max(3.0) as usize;
            trimmed(&format!("{value:.decimals$}"))
        }
    }
}

fn trimmed(text: &str) -> String {
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_about_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.5, "0.5"),
            (0.0123, "0.012"),
            (3.0, "3"),
            (12.34, "12.3"),
            (-0.000_123, "-0.00012"),
            (0.000_45, "0.00045"),
            (0.000_6, "0.0006"),
            (0.001, "0.001"),
            (0.999_6, "1"),
            (999.6, "1000"),
            (9_999.4, "9999"),
            (9_999.6, "10,000"),
            (1_234_567.0, "1,234,567"),
            (-12_345.0, "-12,345"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_figure_has_its_colours_and_labels() {
        let point = |x: f64, y: f64| Point {
            x,
            y,
            interval: Some((y * 0.9, y * 1.1)),
        };
        let mut figure = Figure {
            title: "t".to_owned(),
            x: "clients".to_owned(),
            y: "Mbps".to_owned(),
            logarithmic: false,
            names: Vec::new(),
            series: vec![Series {
                name: "honor".to_owned(),
                colour: 1,
                dashed: true,
                scattered: false,
                points: vec![Some(point(1.0, 10.0)), Some(point(60.0, 500.0))],
            }],
        };
        for logarithmic in [false, true] {
            figure.logarithmic = logarithmic;
            let svg = figure.svg().unwrap().unwrap();
            assert!(
                svg.contains(&text(COLOURS[1])) && svg.contains(&text(INK)),
                "{svg}"
            );
            assert!(svg.contains("clients") && svg.contains("Mbps"));
        }
        figure.names = ["short", "netbench, caching clients on a slow disk"]
            .repeat(4)
            .iter()
            .map(|name| (*name).to_owned())
            .collect();
        assert_eq!(
            (figure.name(0.0), figure.name(1.0)),
            ("short".to_owned(), "netbenc…".to_owned())
        );
        figure.series[0].points = vec![None];
        assert!(figure.svg().is_none());
        figure.series.clear();
        assert!(figure.svg().is_none());
    }
}
