#pragma once

#include "headpond/store.h"
#include "io/local_files.h"

namespace headpond {

// Lists the files below a store's root: size, mtime and inode of each, in the order
// of their names' bytes. Several threads read folders and stat files; they are
// joined before this returns, and pages come on the calling thread.
//
// Symbolic links are followed wherever they lead; loops and dangling links are
// errors that name the path, where they are wanted. Everything that is no directory is listed,
// special files too: reading those says what they are. Files that vanish meanwhile are left out.
void list_tree(LocalFiles& files, const LocalRoot& root, ListRequest& request, unsigned threads);

}  // namespace headpond
