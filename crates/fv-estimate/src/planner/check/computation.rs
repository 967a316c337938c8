//! The request, passes, encoders, decoders and the forecast.

use fv_spec::plan::forecast::Interval;
use fv_spec::plan::{Compute, Decoder, GemmPath, Pass, Placement, Plan, Precision, Role, Tier, Tiles, TwoPass};
use fv_spec::units::MAX_JSON_INTEGER;

use super::{Problems, published};
use crate::error::quoted;
use crate::planner::freevideo::{Task, assemble, facts::Canvas, geometry, two_pass};

pub(super) fn check(plan: &Plan, problems: &mut Problems) {
    request(plan, problems);
    problems.unique(plan.passes.iter().map(|pass| &pass.name), "passes", "name");
    for pass in &plan.passes {
        self::pass(plan, pass, problems);
    }
    passes(plan, problems);
    slots(plan, problems);
    problems.unique(plan.encoders.iter().map(|encoder| encoder.component), "encoders", "component");
    problems.unique(plan.decoders.iter().map(|decoder| decoder.component), "decoders", "component");
    for decoder in &plan.decoders {
        self::decoder(plan, decoder, problems);
    }
    forecast(plan, problems);
}

/// The placement of a component with the most blocks off the device.
fn placement(plan: &Plan, component: Role) -> Option<&Placement> {
    plan.placements.iter().filter(|placement| placement.component == component).max_by_key(|placement| placement.slots)
}

fn request(plan: &Plan, problems: &mut Problems) {
    let request = &plan.request;
    for (name, value) in [("width", request.width), ("height", request.height), ("frames", request.frames), ("steps", request.steps)] {
        problems.expect(value > 0, format_args!("request.{name}"), value, "at least 1");
    }
    problems.expect(request.fps != Some(0), "request.fps", 0, "at least 1, or absent");
    if !published(plan) || request.width == 0 || request.height == 0 {
        return;
    }
    let fps = request.fps.map_or_else(|| "none".to_owned(), |fps| fps.to_string());
    problems.expect(request.fps == Some(geometry::FPS), "request.fps", fps, geometry::FPS);
    let task = Task::parse(&request.task);
    problems.expect(task.is_some(), "request.task", quoted(&request.task), "one of the policy's tasks, such as t2va");
    let references =
        [("reference_video_tokens", request.reference_video_tokens), ("reference_audio_tokens", request.reference_audio_tokens)];
    for (name, tokens) in references {
        let allowed = format_args!("0, as the task {} takes no references", request.task).to_string();
        problems.expect(tokens == 0 || task != Some(Task::T2va), format_args!("request.{name}"), tokens, allowed);
    }
    let mut sizes = Vec::new();
    geometry::check_side("request.width", request.width, &mut sizes);
    geometry::check_side("request.height", request.height, &mut sizes);
    if !sizes.is_empty() {
        problems.0.extend(sizes.into_iter().map(|error| crate::error::InputError::new("inconsistent-plan", error.message)));
        return;
    }
    let Some(frames) = geometry::legal_frames(request.requested_frames) else {
        problems.wrong("request.requested_frames", request.requested_frames, "a number that the model makes a video of");
        return;
    };
    problems.expect(request.frames == frames, "request.frames", request.frames, frames);
    let canvas = geometry::canvas(request.width, request.height, frames);
    problems.expect(request.latent_frames == canvas.latent_frames, "request.latent_frames", request.latent_frames, canvas.latent_frames);
    problems.expect(request.video_tokens == canvas.video_tokens, "request.video_tokens", request.video_tokens, canvas.video_tokens);
    published_passes(plan, &canvas, problems);
    for decoder in &plan.decoders {
        clips_and_tiles(decoder, &canvas, problems);
    }
}

/// The passes' canvases and what comes between them, as the policy makes them of the canvas that is asked for.
fn published_passes(plan: &Plan, target: &Canvas, problems: &mut Problems) {
    for pass in &plan.passes {
        let path = format!("passes.{}", quoted(&pass.name));
        let tokens = geometry::canvas(pass.width, pass.height, target.frames).video_tokens;
        problems.expect(pass.video_tokens == tokens, format_args!("{path}.video_tokens"), pass.video_tokens, tokens);
    }
    let (Some(two), [first, _]) = (&plan.two_pass, &plan.passes[..]) else { return };
    let canvas = geometry::first_canvas(target);
    let size = |width: u32, height: u32| format!("{width}x{height}");
    let (found, wanted) = (size(first.width, first.height), size(canvas.width, canvas.height));
    problems.expect(found == wanted, format_args!("passes.{}", quoted(&first.name)), &found, format_args!("{wanted}, the first canvas"));
    let made = two_pass::between(target, &canvas, [two.base_steps, two.refine_steps]);
    problems.expect(
        two.restart_seed_offset == made.restart_seed_offset,
        "two_pass.restart_seed_offset",
        two.restart_seed_offset,
        made.restart_seed_offset,
    );
    let (Some(found), Some(made)) = (&two.upscale, &made.upscale) else { return };
    let sizes = [
        ("checkpoint_bytes", found.checkpoint_bytes, made.checkpoint_bytes),
        ("workspace_bytes", found.workspace_bytes, made.workspace_bytes),
    ];
    for (name, found, made) in sizes {
        problems.expect(found == made, format_args!("two_pass.upscale.{name}"), found, made);
    }
}

/// Clips and tiles are those of the canvas.
fn clips_and_tiles(decoder: &Decoder, canvas: &Canvas, problems: &mut Problems) {
    let path = format!("decoders.{}", decoder.component.word());
    let (clips, latent_frames, tiles) = assemble::clips_and_tiles(canvas);
    problems.expect(decoder.clips == clips, format_args!("{path}.clips"), decoder.clips, clips);
    let found = decoder.clip_latent_frames;
    problems.expect(found == latent_frames, format_args!("{path}.clip_latent_frames"), found, latent_frames);
    let shown = |tiles: &Tiles| {
        let Tiles { columns, rows, tile_pixels, overlap_pixels } = tiles;
        format!("{columns} x {rows} of {tile_pixels} pixels that share {overlap_pixels}")
    };
    let found = decoder.tiles.as_ref().map_or_else(|| "none".to_owned(), shown);
    problems.expect(decoder.tiles == Some(tiles), format_args!("{path}.tiles"), found, shown(&tiles));
}

/// No slot is set aside that no pass uses.
fn slots(plan: &Plan, problems: &mut Problems) {
    for placement in &plan.placements {
        let computed = plan.passes.iter().flat_map(|pass| &pass.compute).filter(|compute| compute.component == placement.component);
        let Some(most) = computed.map(|compute| compute.slots).max() else { continue };
        problems.expect(
            placement.slots <= most,
            format_args!("placements.{}.{}.slots", placement.component.word(), placement.rank),
            placement.slots,
            format_args!("{most}, as many as the passes use"),
        );
    }
}

/// The passes together: steps add up, the last one makes what was asked for.
fn passes(plan: &Plan, problems: &mut Problems) {
    let request = &plan.request;
    let Some(last) = plan.passes.last() else {
        problems.wrong("passes", "none", "at least one");
        return;
    };
    let steps: u64 = plan.passes.iter().map(|pass| u64::from(pass.steps)).sum();
    problems.expect(steps == u64::from(request.steps), "request.steps", request.steps, format_args!("{steps}, the sum of the passes"));
    let path = format!("passes.{}", quoted(&last.name));
    let found = format!("{}x{}", last.width, last.height);
    let asked = format!("{}x{}", request.width, request.height);
    problems.expect(found == asked, &path, &found, format_args!("{asked}, the size that is asked for"));
    problems.expect(
        last.video_tokens == request.video_tokens,
        format_args!("{path}.video_tokens"),
        last.video_tokens,
        request.video_tokens,
    );
    match (&plan.two_pass, &plan.passes[..]) {
        (Some(two), [first, second]) => two_pass(two, first, second, problems),
        (Some(_), passes) => problems.wrong("two_pass", format_args!("two passes, with {} in `passes`", passes.len()), "two in `passes`"),
        (None, [_]) => {}
        (None, passes) => problems.wrong("passes", format_args!("{} without `two_pass`", passes.len()), "one, or `two_pass` beside two"),
    }
}

fn two_pass(two: &TwoPass, first: &Pass, second: &Pass, problems: &mut Problems) {
    problems.expect(two.base_steps == first.steps, "two_pass.base_steps", two.base_steps, first.steps);
    problems.expect(two.refine_steps == second.steps, "two_pass.refine_steps", two.refine_steps, second.steps);
    let same = [first.width, first.height] == [second.width, second.height];
    let Some(upscale) = &two.upscale else {
        problems.expect(same, "two_pass.upscale", "none between unlike sizes", "one");
        return;
    };
    let sides = [
        ("width", upscale.width, first.width, second.width, upscale.crop_left),
        ("height", upscale.height, first.height, second.height, upscale.crop_top),
    ];
    for (name, scaled, from, to, crop) in sides {
        let twice = u64::from(from) * 2;
        problems.expect(
            u64::from(scaled) == twice && scaled >= to,
            format_args!("two_pass.upscale.{name}"),
            scaled,
            format_args!("{twice}, at least {to}"),
        );
        let centred = scaled.saturating_sub(to) / 2;
        problems.expect(crop == centred, format_args!("two_pass.upscale, cut off of {name}"), crop, centred);
    }
}

fn pass(plan: &Plan, pass: &Pass, problems: &mut Problems) {
    let path = format!("passes.{}", quoted(&pass.name));
    for (name, value) in [("width", pass.width), ("height", pass.height), ("steps", pass.steps)] {
        problems.expect(value > 0, format_args!("{path}.{name}"), value, "at least 1");
    }
    problems.expect(!pass.compute.is_empty(), format_args!("{path}.compute"), "nothing", "at least one transformer");
    problems.unique(pass.compute.iter().map(|compute| compute.component), &path, "component");
    for compute in &pass.compute {
        self::compute(plan, compute, &path, problems);
    }
    let Some(cache) = &pass.block_cache else { return };
    let Some(placement) = placement(plan, cache.component) else {
        problems.wrong(format_args!("{path}.block_cache"), cache.component.word(), "a component with a placement");
        return;
    };
    let resident = placement.count(Tier::Device);
    let most = cache.most_blocks.unwrap_or(placement.block_count);
    problems.expect(
        (resident..=placement.block_count.into()).contains(&u64::from(most)),
        format_args!("{path}.block_cache.most_blocks"),
        most,
        format_args!("from {resident}, which are always there, to {}", placement.block_count),
    );
    if let Some(more) = cache.allowance_bytes.checked_div(placement.block_bytes) {
        let most = resident.saturating_add(more);
        problems.expect(
            u64::from(cache.predicted_blocks) <= most,
            format_args!("{path}.block_cache.predicted_blocks"),
            cache.predicted_blocks,
            format_args!("at most {most}, which the allowance has room for"),
        );
    }
    problems.expect(
        (resident..=most.min(placement.block_count).into()).contains(&u64::from(cache.predicted_blocks)),
        format_args!("{path}.block_cache.predicted_blocks"),
        cache.predicted_blocks,
        format_args!("from {resident} to {}", most.min(placement.block_count)),
    );
}

fn compute(plan: &Plan, compute: &Compute, path: &str, problems: &mut Problems) {
    let path = format!("{path}.{}", compute.component.word());
    match placement(plan, compute.component) {
        None => problems.wrong(&path, "a component without a placement", "one with a placement"),
        Some(placement) => problems.expect(
            compute.slots <= placement.slots.max(1) && (compute.slots > 0 || placement.slots == 0),
            format_args!("{path}.slots"),
            compute.slots,
            format_args!("from {} to {}, the slots of its placement", u8::from(placement.slots > 0), placement.slots),
        ),
    }
    let positive = [
        ("head_group", compute.head_group),
        ("head_parallelism", compute.head_parallelism),
        ("feed_forward_chunk", compute.feed_forward_chunk),
        ("projection_chunk", compute.projection_chunk),
        ("window_batch", compute.window_batch.unwrap_or(1)),
    ];
    for (name, value) in positive {
        problems.expect(value > 0, format_args!("{path}.{name}"), value, "at least 1");
    }
    let available = &plan.system.attention_backends.value;
    for backend in [Some(compute.attention.global), compute.attention.window].into_iter().flatten() {
        problems.expect(available.contains(&backend), format_args!("{path}.attention"), backend.word(), "one of system.attention_backends");
    }
    let int8 = plan.system.precision.value == Precision::Int8;
    problems.expect(
        (compute.gemm == GemmPath::Int8PerRow) == int8 || !published(plan),
        format_args!("{path}.gemm"),
        compute.gemm.word(),
        format_args!("a path for {} weights", plan.system.precision.value.word()),
    );
    problems.expect(
        !compute.outputs_on_host || compute.residual_on_host || !published(plan),
        format_args!("{path}.residual_on_host"),
        compute.residual_on_host,
        "true, as attention outputs on the host bring it with them",
    );
}

fn decoder(plan: &Plan, decoder: &Decoder, problems: &mut Problems) {
    let path = format!("decoders.{}", decoder.component.word());
    let Some(placement) = placement(plan, decoder.component) else {
        problems.wrong(&path, "a component without a placement", "one with a placement");
        return;
    };
    let off = u64::from(placement.block_count).saturating_sub(placement.count(Tier::Device));
    let pinned = placement.count(Tier::Pinned);
    problems.expect(
        decoder.offload || (off == 0 && placement.slots == 0),
        format_args!("{path}.offload"),
        "false",
        format_args!("true, with {off} blocks off the device and {} slots", placement.slots),
    );
    let wanted = if decoder.pin_weights { off } else { 0 };
    problems.expect(
        pinned == wanted,
        format_args!("{path}.pin_weights"),
        decoder.pin_weights,
        format_args!("what {pinned} page-locked of {off} blocks off the device mean"),
    );
    let bytes = off.saturating_mul(placement.block_bytes);
    let wanted = if decoder.pin_weights { bytes } else { 0 };
    problems.expect(
        placement.pin_bytes == wanted,
        format_args!("placements.{}.{}.pin_bytes", placement.component.word(), placement.rank),
        placement.pin_bytes,
        format_args!("{wanted}, as pin_weights is {}", decoder.pin_weights),
    );
    problems.expect(decoder.clips > 0 && decoder.clip_latent_frames > 0, format_args!("{path}.clips"), decoder.clips, "at least 1");
    if let Some(tiles) = &decoder.tiles {
        problems.expect(
            tiles.columns > 0 && tiles.rows > 0 && tiles.overlap_pixels < tiles.tile_pixels.max(1),
            format_args!("{path}.tiles"),
            format_args!("{} x {}", tiles.columns, tiles.rows),
            "at least one tile, larger than its overlap",
        );
    }
}

fn forecast(plan: &Plan, problems: &mut Problems) {
    let Some(forecast) = &plan.forecast else { return };
    let mut ordered = |path: String, time: &Interval| {
        problems.expect(
            time.low_ns <= time.value_ns && time.value_ns <= time.high_ns && time.value_ns > 0 && time.high_ns <= MAX_JSON_INTEGER,
            path,
            format_args!("{}, {}, {}", time.low_ns, time.value_ns, time.high_ns),
            "low, value and high in this order, the value above 0",
        );
    };
    for stage in &forecast.stages {
        ordered(format!("forecast.stages.{}", stage.name.word()), &stage.time);
    }
    for time in &forecast.passes {
        ordered(format!("forecast.passes.{}", quoted(&time.name)), &time.step);
    }
    if let Some(request) = &forecast.request {
        ordered("forecast.request".to_owned(), request);
    }
    let longest = forecast.stages.iter().map(|stage| stage.time.value_ns).max().unwrap_or(0);
    if let Some(request) = forecast.request.filter(|request| request.value_ns < longest) {
        problems.wrong("forecast.request.value_ns", request.value_ns, format_args!("at least {longest}, that of its longest stage"));
    }
    for time in &forecast.passes {
        let pass = plan.passes.iter().find(|pass| pass.name == time.name);
        let steps = pass.map_or_else(|| "a pass of the plan".to_owned(), |pass| format!("{} steps", pass.steps));
        let found = format!("{} steps", time.steps);
        problems.expect(found == steps, format_args!("forecast.passes.{}", quoted(&time.name)), &found, &steps);
    }
}
