//! A program that changes its working directory.

use crate::common::Dir;
use crate::common::scene::alone;
use lowtide::{OpenOptions, Pager, Size};

#[test]
fn a_file_with_a_relative_name_is_flushed_after_its_and_the_working_directory_have_changed() {
    alone(|| {
        let dir = Dir::new();
        let (old, elsewhere) = (dir.path().join("old"), dir.path().join("elsewhere"));
        std::fs::create_dir_all(old.join("sub")).unwrap();
        std::fs::create_dir_all(&elsewhere).unwrap();
        std::env::set_current_dir(&old).unwrap();
        let pager = Pager::builder().max(Size::mib(1)).build().unwrap();
        let view = OpenOptions::new().create_with_len(0).open(&pager, "sub/data").unwrap();
        std::env::set_current_dir(&elsewhere).unwrap();
        std::fs::rename(old.join("sub"), old.join("renamed")).unwrap();
        view.write_at(0, b"durable").unwrap();
        view.flush().unwrap();
        view.close().unwrap();
        pager.close().unwrap();
        assert_eq!(std::fs::read(old.join("renamed/data")).unwrap(), b"durable");
    });
}
