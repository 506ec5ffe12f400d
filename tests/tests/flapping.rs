//! Drivers whose lines break again and again in every way that there is.

use broker_tests::{
    chance::Chance,
    proxy::{Flow, Proxy, Way},
    story::{Load, QUICK, Story, stop},
};
use tokio::time::sleep;

const DRIVERS: usize = 2;
/// Before the memory is looked at for the first time.
const WARM_UP: usize = 4;
const ROUNDS: usize = 12;
/// By how much the memory may differ where nothing is left behind: allocators keep some.
const MEMORY: u64 = 16 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_that_break_again_and_again_leave_nothing_behind() {
    let seed = std::env::var("BROKER_TESTS_SEED")
        .map_or_else(|_| rand::random(), |seed| seed.parse().expect("a number"));
    println!("BROKER_TESTS_SEED={seed}");
    let chance = Chance::new(seed, "lines");
    let story = Story::default();
    let broker = story.broker(QUICK);
    let descriptors = broker.descriptors();
    let proxy = Proxy::to(broker.drivers).await;
    let drivers: Vec<_> =
        (0..DRIVERS).map(|n| story.driver(proxy.address, &format!("sim-{n}"))).collect();
    broker.until_listed("there", |listed| listed.len() == DRIVERS).await;
    let caller = story.caller(broker.channel().await);
    let load = Load::start(&caller, 4, false);

    let mut memory = 0;
    for round in 0..ROUNDS {
        if round == WARM_UP {
            memory = broker.memory();
        }
        let way = *chance.pick(&[Way::There, Way::Back, Way::Both]);
        match chance.among(0..5) {
            0 => proxy.reset(),
            1 => proxy.connections().iter().for_each(|line| line.half_close(way)),
            2 => proxy.connections().iter().for_each(|line| line.cut_after(way, 100)),
            3 => proxy.flow(way, Flow::Frozen),
            _ => {
                proxy.flow(way, Flow::Lost);
                sleep(chance.millis(0..1_000)).await;
                // What TCP has lost for good is lost with its connection.
                proxy.reset();
            }
        }
        sleep(chance.millis(0..1_000)).await;
        proxy.heal();
        load.makes(2).await;
    }
    let made = load.stop().await;
    let grown = broker.memory().saturating_sub(memory);
    println!("{made} machines in {ROUNDS} rounds, {grown} KiB more memory since the {WARM_UP}th");
    assert!(grown <= MEMORY, "{grown} KiB more");
    for driver in drivers {
        stop(driver).await;
    }
    assert_eq!(story.verdict(&broker, descriptors).await, made);
}
