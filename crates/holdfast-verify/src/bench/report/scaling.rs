//! The figures of `scale`: the gain of more workers and network cards, pinned and not.

use std::collections::BTreeSet;

use super::{
    figure::{Figure, Series},
    group::{Group, Server, Value},
    sections::Sections,
};
use crate::bench::scale::Shape;

impl Sections<'_> {
    /// Throughput, and the server's CPU time of an operation, by workers; none unless the servers are shapes.
    pub(super) fn by_workers(&self, group: &Group<'_>) -> Vec<Figure> {
        let mut shapes: Vec<(Shape, &Server)> = Vec::new();
        for server in &self.servers {
            let is_here = group.cells.keys().any(|(of, _)| of == server);
            let shape = Shape::named(&server.name).filter(|_| is_here);
            shapes.extend(shape.map(|shape| (shape, server)));
        }
        if shapes.is_empty() {
            return Vec::new();
        }
        // The points of a line follow each other.
        shapes.sort_by_key(|(shape, _)| (shape.nics, !shape.pin, shape.workers));
        let workers: BTreeSet<usize> = shapes.iter().map(|(shape, _)| shape.workers).collect();
        let figure = |title: &str, y: &str, value: &dyn Fn(&Server) -> Option<Value>| Figure {
            title: title.to_owned(),
            x: "workers".to_owned(),
            y: y.to_owned(),
            logarithmic: false,
            names: workers.iter().map(usize::to_string).collect(),
            series: lines(&shapes, &workers, value),
        };
        let clients = group.clients().last().copied().unwrap_or(1);
        let cost = |server: &Server| {
            group.value(server, clients, &|run| {
                let operations = run.record.outcome.as_ref()?.measured.operations;
                Some(run.server_cpu? * 1e6 / operations.max(1) as f64)
            })
        };
        let rate = |server: &Server| group.rate(server, clients);
        vec![
            figure("Throughput by workers", group.unit(), &rate),
            figure("CPU time of the server for each operation", "us", &cost),
        ]
    }
}

/// One line for each number of cards, pinned and not.
fn lines(
    shapes: &[(Shape, &Server)],
    workers: &BTreeSet<usize>,
    value: &dyn Fn(&Server) -> Option<Value>,
) -> Vec<Series> {
    let nics: BTreeSet<usize> = shapes.iter().map(|(shape, _)| shape.nics).collect();
    let place = |of: &BTreeSet<usize>, number: usize| of.range(..number).count();
    let mut lines: Vec<Series> = Vec::new();
    for (shape, server) in shapes {
        let name = shape.line();
        if lines.last().is_none_or(|last| last.name != name) {
            lines.push(Series {
                name,
                colour: place(&nics, shape.nics),
                dashed: !shape.pin,
                scattered: false,
                points: Vec::new(),
            });
        }
        let x = place(workers, shape.workers) as f64;
        let point = value(server).map(|value| value.point(x));
        if let Some(line) = lines.last_mut() {
            line.points.push(point);
        }
    }
    lines
}
