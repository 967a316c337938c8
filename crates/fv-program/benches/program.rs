//! What it costs to order, pack, check and time a program of forty blocks that are streamed.

use divan::{Bencher, black_box};
use fv_program::{
    arena::{Effort, pack},
    check::check_places,
    order::Order,
    rates::{MatrixRates, Rates, costs},
    simulate::replay,
    synthetic::Transformer,
    trace::trace,
};
use fv_spec::program::Program;

fn main() {
    divan::main();
}

/// Transformers with rows of the feed-forward layer in chunks of so many: some 5,400, 21,000 and 40,000 operations.
const CHUNKS: [u64; 3] = [8192, 1280, 640];

fn program(chunk: u64) -> Program {
    Transformer { chunk, ..Transformer::LARGE }.program()
}

fn packed(chunk: u64) -> Program {
    let mut program = program(chunk);
    pack(&mut program, Effort::default());
    program
}

fn rates() -> Rates {
    Rates {
        matrix: MatrixRates { bf16: 700_000_000_000_000, ..MatrixRates::default() },
        attention: 600_000_000_000_000,
        memory: 4_000_000_000_000,
        pinned_to_device: 50_000_000_000,
        pageable_to_device: 10_000_000_000,
        device_to_pinned: 50_000_000_000,
        device_to_pageable: 10_000_000_000,
        disk: 3_000_000_000,
        host_memory: 50_000_000_000,
        launch_ns: 3000,
        copy_ns: 10_000,
    }
}

#[divan::bench(args = CHUNKS)]
fn order(bencher: Bencher<'_, '_>, chunk: u64) {
    let program = program(chunk);
    bencher.counter(divan::counter::ItemsCount::new(program.ops().count())).bench(|| Order::of(black_box(&program)));
}

#[divan::bench(args = CHUNKS)]
fn arena(bencher: Bencher<'_, '_>, chunk: u64) {
    bencher.with_inputs(|| program(chunk)).bench_local_refs(|program| pack(program, Effort::default()));
}

#[divan::bench(args = CHUNKS)]
fn check(bencher: Bencher<'_, '_>, chunk: u64) {
    let program = packed(chunk);
    bencher.bench(|| check_places(black_box(&program), &[]));
}

#[divan::bench(args = CHUNKS)]
fn simulate(bencher: Bencher<'_, '_>, chunk: u64) {
    let program = packed(chunk);
    bencher.bench(|| {
        let costs = costs(black_box(&program), &rates()).expect("all rates are given");
        replay(&program, &costs, |_| {})
    });
}

#[divan::bench(args = CHUNKS)]
fn draw(bencher: Bencher<'_, '_>, chunk: u64) {
    let program = packed(chunk);
    let costs = costs(&program, &rates()).expect("all rates are given");
    bencher.bench(|| trace(black_box(&program), &costs, 1));
}
