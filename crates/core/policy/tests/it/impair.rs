//! The fates of many frames on impaired links (loss, delay, copies, damage), compared with theory: rates of losses,
//! bursts, distributions and times.

use netvale_policy::impair::{Fate, Model, Spec};
use proptest::prelude::*;

const FRAMES: usize = 1_000_000;

/// Returns the fates of [`FRAMES`] frames of 1500 bytes each, all sent at time 0.
fn fates(words: &str) -> impl Iterator<Item = Fate> {
    let mut model = Model::new(&words.parse::<Spec>().unwrap(), 1);
    (0..FRAMES).map(move |_| model.decide(0, 1500))
}

fn losses(words: &str) -> Vec<bool> {
    fates(words).map(|fate| fate == Fate::Lost).collect()
}

/// Returns the arrival times, in ns, of frames on a link without losses.
fn dues(words: &str) -> Vec<f64> {
    fates(words).map(due).map(|due| due as f64).collect()
}

fn due(fate: Fate) -> u64 {
    match fate {
        Fate::Sent { due_ns, .. } => due_ns,
        Fate::Lost => panic!("a link without losses has lost a frame"),
    }
}

fn count(frames: &[bool]) -> usize {
    frames.iter().filter(|frame| **frame).count()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
}

/// Returns the correlation of each value with the value before it, from -1 to 1.
fn autocorrelation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let deviation = deviation(values);
    let products: f64 = values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    products / (values.len() - 1) as f64 / deviation.powi(2)
}

/// Asserts that the share of the `found` frames is within 3 standard deviations of the `expected` share. If the fates
/// of frames are correlated, `alike` frames count as one independent sample.
fn assert_share(found: usize, expected: f64, alike: f64) {
    let found = found as f64 / FRAMES as f64;
    let sigma = (expected * (1.0 - expected) * alike / FRAMES as f64).sqrt();
    assert!((found - expected).abs() <= 3.0 * sigma, "{found} for {expected}, 3 sigma being {}", 3.0 * sigma);
}

fn assert_near(value: f64, expected: f64, tolerance: f64) {
    assert!((value - expected).abs() <= tolerance * expected.abs(), "{value} for {expected}");
}

/// Returns the average length of runs of losses.
fn burst(losses: &[bool]) -> f64 {
    let starts = losses.windows(2).filter(|pair| !pair[0] && pair[1]).count();
    count(losses) as f64 / starts as f64
}

/// Objective: random losses have the configured rate, and are independent of each other.
#[test]
fn random_losses_have_the_configured_rate() {
    for percent in [0.1, 1.0, 30.0] {
        let losses = losses(&format!("loss {percent}%"));
        assert_share(count(&losses), percent / 100.0, 1.0);
        assert_near(burst(&losses), 1.0 / (1.0 - percent / 100.0), 0.02);
    }
    assert_eq!(count(&losses("loss 0%")), 0);
    assert_eq!(count(&losses("loss 100%")), FRAMES);
}

/// Objective: losses of the model of Gilbert and Elliott have the rate and the burst lengths of the theory.
#[test]
fn gemodel_losses_match_its_theory() {
    let p = 0.01;
    let r = 0.25;
    let correlation: f64 = 1.0 - p - r;
    let alike = (1.0 + correlation) / (1.0 - correlation);
    let bad = p / (p + r);
    // Gilbert's model: all frames are lost in the bad state, which lasts for 1/r frames on average.
    let gilbert = losses("loss gemodel 1% 25%");
    assert_share(count(&gilbert), bad, alike);
    assert_near(burst(&gilbert), 1.0 / r, 0.03);
    // If only P is given, it is the rate of losses.
    let alone = losses("loss gemodel 10%");
    assert_share(count(&alone), 0.1, 1.0);
    assert_near(burst(&alone), 1.0 / 0.9, 0.01);
    // Frames are lost in both states, with different probabilities.
    let both = losses("loss gemodel 1% 25% 70% 0.5%");
    assert_share(count(&both), bad * 0.7 + (1.0 - bad) * 0.005, alike);
}

/// Objective: losses of the Markov chain of four states have the rate of its stationary distribution.
#[test]
fn state_losses_have_the_stationary_rate() {
    let p13 = 0.01;
    let p31 = 0.3;
    let p32 = 0.2;
    let p23 = 0.4;
    let p14 = 0.02;
    let losses = losses("loss state 1% 30% 20% 40% 2%");
    // The chain moves from 3 to 1 as often as from 1 to 3, and likewise for 3 and 2, and for 1 and 4.
    let three = p13 / p31;
    let two = three * p32 / p23;
    let four = p14;
    assert_share(count(&losses), (three + four) / (1.0 + two + three + four), 4.0);
    // If only P13 is given, it is the rate of losses.
    let alone = self::losses("loss state 10%");
    assert_share(count(&alone), 0.1, 1.0);
    assert_near(burst(&alone), 1.0 / 0.9, 0.01);
}

/// Objective: bit errors lose frames with the probability that follows from the frames' length.
#[test]
fn bit_errors_lose_frames_by_their_length() {
    assert_share(count(&losses("loss ber 1e-5")), 1.0 - (1.0 - 1e-5_f64).powi(12_000), 1.0);
    assert_eq!(count(&losses("loss ber 0")), 0);
    assert_eq!(count(&losses("loss ber 1")), FRAMES);
    let mut model = Model::new(&"loss ber 1".parse().unwrap(), 1);
    assert_eq!(model.decide(0, 0), Fate::Sent { due_ns: 0, again: false, flip: None });
}

/// Objective: delays have the mean and the deviation of their distribution, and stay within its bounds.
#[test]
fn delays_have_the_mean_and_deviation_configured() {
    let pareto = pareto_moments();
    for (words, (mean_is, deviation_is)) in [
        ("", (0.0, 1.0 / 3.0_f64.sqrt())),
        ("distribution normal", (0.0, 1.0)),
        ("distribution exponential", (0.0, 1.0)),
        ("distribution pareto", pareto),
    ] {
        let delays = dues(&format!("delay 100ms 10ms {words}"));
        assert_near(mean(&delays), 100e6 + mean_is * 10e6, 0.001);
        assert_near(deviation(&delays), deviation_is * 10e6, 0.01);
    }
    assert!(dues("delay 100ms 10ms").iter().all(|delay| (90e6..110e6).contains(delay)));
    assert!(dues("delay 100ms 10ms distribution exponential").iter().all(|delay| *delay >= 90e6));
}

/// Returns the mean and the standard deviation of a Pareto delay, in units of the jitter: the moments of 4/3 (u^(-1/3)
/// - 3/2) for u from 0 to 1, limited to 4, the value at u = (2/9)^3.
fn pareto_moments() -> (f64, f64) {
    let cut = (2.0_f64 / 9.0).powi(3);
    // Integrals of u^(-1/3) and of u^(-2/3) from `cut` to 1.
    let first = 1.5 * (1.0 - cut.powf(2.0 / 3.0));
    let second = 3.0 * (1.0 - cut.cbrt());
    let mean = 4.0 / 3.0 * (first - 1.5 * (1.0 - cut)) + 4.0 * cut;
    let square = 16.0 / 9.0 * (second - 3.0 * first + 2.25 * (1.0 - cut)) + 16.0 * cut;
    (mean, (square - mean * mean).sqrt())
}

/// Objective: for each random number, a Pareto-normal delay is the weighted mean of a quarter normal and three quarters
/// Pareto.
#[test]
fn paretonormal_is_a_mixture() {
    let of = |shape: &str| dues(&format!("delay 100ms 10ms distribution {shape}"));
    for ((normal, pareto), mixture) in of("normal").iter().zip(of("pareto")).zip(of("paretonormal")).take(10_000) {
        assert!((0.25 * normal + 0.75 * pareto - mixture).abs() < 2_000.0, "{normal} {pareto} {mixture}");
    }
}

/// Objective: consecutive delays have the configured correlation.
#[test]
fn consecutive_delays_are_correlated_as_configured() {
    for (percent, shape) in [(0, ""), (25, ""), (75, ""), (50, "distribution normal")] {
        let found = autocorrelation(&dues(&format!("delay 100ms 10ms {percent}% {shape}")));
        assert!((found - f64::from(percent) / 100.0).abs() < 0.02, "{found} for {percent}% {shape}");
    }
    let same = dues("delay 100ms 10ms 100%");
    assert!(same.iter().all(|delay| *delay == same[0]));
}

/// Objective: duplicates, and frames with an inverted bit at any position, have the configured rates.
#[test]
fn duplicates_and_damage_have_the_configured_rates() {
    let mut twice = 0;
    let mut damaged = 0;
    let mut parts = [0_u32; 8];
    for fate in fates("duplicate 2% corrupt 5%") {
        let Fate::Sent { again, flip, .. } = fate else { panic!("a link without losses has lost a frame") };
        twice += usize::from(again);
        damaged += usize::from(flip.is_some());
        if let Some(bit) = flip {
            parts[(bit / 1500) as usize] += 1;
        }
    }
    assert_share(twice, 0.02, 1.0);
    assert_share(damaged, 0.05, 1.0);
    assert!(parts.iter().all(|part| (5_950..6_550).contains(part)), "{parts:?}");
}

/// Objective: a frame that is both duplicated and lost arrives once, as in the kernel, and copies may be lost, too.
#[test]
fn a_lost_duplicate_arrives_once() {
    let fates: Vec<Fate> = fates("duplicate 100% loss 30%").collect();
    assert!(!fates.contains(&Fate::Lost));
    let once = fates.iter().filter(|fate| matches!(fate, Fate::Sent { again: false, .. })).count();
    assert_share(once, 0.3, 1.0);
    let mut model = Model::new(&"duplicate 100% loss 30%".parse().unwrap(), 1);
    let copies: Vec<Fate> = (0..FRAMES).map(|_| model.copy(0, 60)).collect();
    assert!(!copies.iter().any(|fate| matches!(fate, Fate::Sent { again: true, .. })));
    assert_share(copies.iter().filter(|fate| **fate == Fate::Lost).count(), 0.3, 1.0);
}

/// Objective: the configured share of frames skips the delay, at most one frame in `gap`.
#[test]
fn reordered_frames_skip_the_delay() {
    let skipped = |words: &str| -> Vec<bool> { fates(words).map(|fate| due(fate) == 0).collect() };
    assert_share(count(&skipped("delay 10ms reorder 25%")), 0.25, 1.0);
    let fifth = skipped("delay 10ms reorder 100% gap 5");
    assert!(fifth.iter().enumerate().all(|(frame, skips)| *skips == (frame % 5 == 4)));
    // After a frame that skips the delay, the next four frames may not. Each further frame skips it with a probability
    // of one half: on average, the second of these frames does.
    assert_share(count(&skipped("delay 10ms reorder 50% gap 5")), 1.0 / 6.0, 1.0);
}

/// Objective: at 10 Mbit/s, frames of 1500 bytes arrive in order, 1.2 ms apart, however early they are sent.
#[test]
fn rate_spaces_frames() {
    for (words, first) in [("rate 10mbit", 1_200_000), ("rate 10mbit delay 70ms", 71_200_000)] {
        let mut model = Model::new(&words.parse().unwrap(), 1);
        let dues: Vec<u64> = (0..100).map(|_| due(model.decide(0, 1500))).collect();
        assert_eq!(dues[0], first);
        assert!(dues.windows(2).all(|pair| pair[1] - pair[0] == 1_200_000));
        // A frame that is sent after a pause does not wait.
        assert_eq!(due(model.decide(1_000_000_000, 1500)), 1_000_000_000 + first);
    }
    let mut jittered = Model::new(&"rate 10mbit delay 10ms 5ms".parse().unwrap(), 1);
    let dues: Vec<u64> = (0..100).map(|frame| due(jittered.decide(frame * 1000, 1500))).collect();
    assert!(dues.windows(2).all(|pair| pair[1] - pair[0] >= 1_200_000));
}

/// Objective: frames that exceed the queue are lost, and other frames pass at the rate.
#[test]
fn queue_loses_what_is_too_much() {
    let mut model = Model::new(&"rate 10mbit delay 50ms queue 15000".parse().unwrap(), 1);
    // 100 Mbit/s are sent for one second: a tenth of the frames passes, and the contents of the queue.
    let sent = (0..8333).filter(|frame| model.decide(frame * 120_000, 1500) != Fate::Lost).count();
    assert!((833..=833 + 12).contains(&sent), "{sent}");
}

/// Objective: jitter lets frames overtake other frames; ordered frames never overtake other frames.
#[test]
fn ordered_frames_never_overtake_others() {
    let dues = |words: &str| -> Vec<u64> {
        let mut model = Model::new(&words.parse().unwrap(), 1);
        (0..10_000).map(|frame| due(model.decide(frame * 1000, 60))).collect()
    };
    let free = dues("delay 10ms 5ms");
    let ordered = dues("delay 10ms 5ms ordered");
    assert!(!free.is_sorted());
    assert!(ordered.is_sorted());
    assert!(free.iter().zip(&ordered).all(|(free, ordered)| free <= ordered));
    assert!(dues("delay 10ms 5ms ordered rate 1gbit").windows(2).all(|pair| pair[1] - pair[0] >= 480));
}

/// Objective: the seed determines the fates; a seed in the specification takes precedence.
#[test]
fn the_seed_determines_the_fates() {
    let fates = |words: &str, seed| -> Vec<Fate> {
        let mut model = Model::new(&words.parse().unwrap(), seed);
        (0..1000).map(|frame| model.decide(frame, 1500)).collect()
    };
    let words = "delay 10ms 5ms 25% distribution pareto loss 10% duplicate 5% corrupt 5%";
    assert_eq!(fates(words, 1), fates(words, 1));
    assert_ne!(fates(words, 1), fates(words, 2));
    assert_eq!(fates(&format!("{words} seed 1"), 2), fates(words, 1));
}

/// Objective: a seed yields the same fates on every machine and in every version, so that a reported failure can be
/// reproduced.
#[test]
fn a_seed_has_the_same_fates_everywhere() {
    let mut model = Model::new(&"delay 10ms 1ms distribution normal loss 20%".parse().unwrap(), 42);
    let dues = (0..6).map(|_| match model.decide(0, 60) {
        Fate::Sent { due_ns, .. } => due_ns,
        Fate::Lost => 0,
    });
    assert_eq!(dues.collect::<Vec<u64>>(), [0, 9_648_071, 11_016_602, 11_389_160, 8_960_571, 9_656_494]);
}

/// Generates numbers, with a preference for extremes.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0..10_u64, Just(u64::MAX), Just(i64::MAX as u64), 0..1_000_000_000_u64]
}

fn percent() -> impl Strategy<Value = String> {
    let any = (0..=100_000_u32).prop_map(|part| format!("{}%", f64::from(part) / 1e3));
    prop_oneof![Just("0%".to_string()), Just("100%".to_string()), any]
}

fn delay() -> impl Strategy<Value = String> {
    let shapes = ["uniform", "normal", "pareto", "paretonormal", "exponential"];
    let order = prop_oneof![
        Just(String::new()),
        Just("ordered".to_string()),
        (percent(), percent(), any::<u32>()).prop_map(|(part, like, gap)| format!("reorder {part} {like} gap {gap}")),
    ];
    (number(), number(), percent(), prop::sample::select(shapes.to_vec()), order).prop_map(
        |(mean, jitter, like, shape, order)| {
            format!("delay {}ns {}ns {like} distribution {shape} {order}", mean.max(1), jitter.max(1))
        },
    )
}

fn loss() -> impl Strategy<Value = String> {
    let parts = || (percent(), percent(), percent(), percent(), percent());
    prop_oneof![
        (percent(), percent()).prop_map(|(part, like)| format!("loss {part} {like}")),
        parts().prop_map(|(a, b, c, d, e)| format!("loss state {a} {b} {c} {d} {e}")),
        parts().prop_map(|(a, b, c, d, _)| format!("loss gemodel {a} {b} {c} {d}")),
        (0..=1_000_000_u32, 6..18_u32).prop_map(|(digits, places)| format!("loss ber {digits}e-{places}")),
    ]
}

fn rate() -> impl Strategy<Value = String> {
    let queue =
        prop::option::of(number()).prop_map(|queue| queue.map_or(String::new(), |queue| format!("queue {queue}")));
    (number(), any::<i32>(), any::<u32>(), any::<i32>(), queue)
        .prop_map(|(rate, frame, cell, each, queue)| format!("rate {} {frame} {cell} {each} {queue}", rate.max(1)))
}

fn chance(word: &'static str) -> impl Strategy<Value = String> {
    (percent(), percent()).prop_map(move |(part, like)| format!("{word} {part} {like}"))
}

fn room() -> impl Strategy<Value = String> {
    (1..=u32::MAX, 1..=u64::MAX, any::<u64>())
        .prop_map(|(limit, bytes, seed)| format!("limit {limit} bytes {bytes} seed {seed}"))
}

/// Generates specifications with arbitrary settings.
fn words() -> impl Strategy<Value = String> {
    let part = |part: BoxedStrategy<String>| prop::option::of(part).prop_map(Option::unwrap_or_default);
    let delays = (part(delay().boxed()), part(loss().boxed()), part(rate().boxed()));
    let others = (part(chance("duplicate").boxed()), part(chance("corrupt").boxed()), part(room().boxed()));
    (delays, others).prop_map(|((a, b, c), (d, e, f))| format!("{a} {b} {c} {d} {e} {f}"))
}

proptest! {
    /// Objective: a printed specification reads back as the same specification.
    #[test]
    fn a_shown_specification_reads_back_the_same(words in words()) {
        let spec: Spec = words.parse().unwrap();
        prop_assert_eq!(spec.to_string().parse::<Spec>(), Ok(spec));
    }

    /// Objective: no numbers make a model panic, deliver frames before they were sent, or invert bits outside the
    /// frame.
    #[test]
    fn no_numbers_make_a_model_panic(
        words in words(),
        seed: u64,
        frames in prop::collection::vec((number(), prop_oneof![any::<u32>(), 0..2000_u32]), 1..50),
    ) {
        let mut model = Model::new(&words.parse().unwrap(), seed);
        for (now, len) in frames {
            for fate in [model.decide(now, len), model.copy(now, len)] {
                if let Fate::Sent { due_ns, flip, .. } = fate {
                    prop_assert!(due_ns >= now);
                    prop_assert!(flip.is_none_or(|bit| u64::from(bit) < u64::from(len) * 8));
                }
            }
        }
    }

    /// Objective: texts of valid words in any order are refused or printed, and never cause a panic.
    #[test]
    fn misplaced_words_never_cause_a_panic(
        text in "((delay|loss|rate|reorder|gap|distribution|limit|state|ber|\
                 ordered|normal|-?[0-9]{1,3}(ms|%|e9)?) ?){0,8}"
    ) {
        if let Ok(spec) = text.parse::<Spec>() {
            prop_assert_eq!(spec.to_string().parse::<Spec>(), Ok(spec));
        }
    }
}
