//! Whether there is room for several records is what appending them finds.

use super::*;
use crate::log::{AppendError, Purpose};

#[test]
fn room_is_promised_exactly_where_every_record_can_be_appended() {
    each_seed(100, |seed| {
        let mut random = Random::new(seed);
        let options = Options {
            segment_bytes: 64 * 1024,
            record_bytes_max: 40 * 1024,
            commit_bytes_max: [4096, 16 * 1024, 64 * 1024][random.below(3) as usize],
            ..Options::default()
        };
        let (mut log, _) = Log::open(Arc::new(SimDisk::new(seed)), options, &mut |_| Ok(())).unwrap();
        while let Some(job) = log.maintenance(&KeepAll) {
            log.complete_maintenance(job.run()).unwrap();
        }
        let (mut yes, mut no) = (0, 0);
        while no < 10 {
            let count = 1 + random.below(6);
            // An empty log has room for what comes first, so each seed meets both answers.
            let most = [10, 300, 5_000, 45_000][if yes == 0 { 0 } else { random.below(4) as usize }];
            let lengths: Vec<u64> = (0..count).map(|_| random.below(most)).collect();
            let purpose = [Purpose::Fill, Purpose::Drain, Purpose::Upkeep][random.below(3) as usize];
            let promised = log.check_room(&lengths, purpose);
            if promised.is_err() && random.one_in(2) {
                no += 1;
                continue;
            }
            let appended = lengths.iter().try_for_each(|length| {
                let payload = vec![7; *length as usize];
                let append = match purpose {
                    Purpose::Fill => Log::append,
                    Purpose::Drain => Log::append_reserved,
                    Purpose::Upkeep => Log::append_kept,
                };
                append(&mut log, 40, &[], &payload).map(|_| ())
            });
            match (&promised, &appended) {
                (Ok(()), Ok(())) => yes += 1,
                (Err(AppendError::NoSpace), Err(AppendError::NoSpace)) => no += 1,
                // Which of two reasons comes first may differ: too large is seen before anything is appended.
                (Err(AppendError::TooLarge { .. }), Err(_)) => {}
                other => panic!("seed {seed}: {lengths:?} {purpose:?}: {other:?}"),
            }
            if random.one_in(3)
                && let Some(job) = log.next_write().unwrap()
            {
                log.complete_write(job.run()).unwrap();
            }
        }
        assert!(yes > 0);
    });
}
