// SPDX-License-Identifier: Apache-2.0
//
// Keys and values of one sequence. A cache answers one question, which spans may layer l see, and changes
// only through a transaction: rows are speculated after the committed ones, then a path of them is committed,
// or none. Destroying a transaction without Commit is rollback, so an error in the middle of a step loses
// nothing. Not thread-safe; the forward pass writes disjoint rows from several threads inside one
// transaction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "attention/kv_span.h"
#include "longspec/status.h"

namespace longspec {

enum class Exactness : uint8_t { kLossless, kApproximate };

class KvCache;
class KvMover;

class KvTransaction {
 public:
  KvTransaction(KvTransaction&& other) noexcept;
  KvTransaction& operator=(KvTransaction&&) = delete;
  ~KvTransaction();  // rolls back unless committed

  KvCache& cache() const { return *cache_; }
  int base() const { return base_; }  // position of row 0
  int slot() const { return slot_; }  // of row 0: the committed slots it sees before it
  int n_rows() const { return n_rows_; }
  // For the slots of its rows. Valid until the transaction ends.
  KvWriter Writer(int layer) const;

  // Keeps these rows, in this order, as positions base, base + 1, ... `rows` ascends. Ends the transaction.
  void Commit(std::span<const int32_t> rows);
  void CommitAll();

 private:
  friend class KvCache;
  KvTransaction(KvCache* cache, int base, int n_rows);
  KvCache* cache_;
  int base_;
  int slot_;
  int n_rows_;
};

class KvCache {
 public:
  virtual ~KvCache() = default;

  virtual int length() const = 0;  // committed positions
  // Slots that hold them: fewer, if the cache forgets some.
  virtual int n_slots() const { return length(); }
  // Where the next row stands, for rotation: another place, if positions are counted in the cache.
  virtual int next_position() const { return length(); }
  virtual int capacity() const = 0;  // most positions it may hold, speculated rows included
  virtual Exactness exactness() const = 0;
  virtual size_t bytes() const = 0;  // memory held now
  virtual KvSpan Span(int layer) const = 0;
  // Who moves, reads and writes what lies there (kv/kv_mover.h).
  virtual const KvMover& mover() const;
  // This layer is going to be read: what is not in memory may be fetched. Returns at once.
  virtual void Prefetch(int) const {}

  // Makes room for n_rows rows after the committed ones. REQUIRES: no transaction is open.
  Result<KvTransaction> Begin(int n_rows);

  // Forgets positions from `length` on. REQUIRES: length <= this->length(), no transaction is open.
  virtual void Truncate(int length) = 0;

 protected:
  friend class KvTransaction;
  virtual Status Reserve(int n_rows) = 0;
  // Where the open transaction's rows are written; nowhere in a cache without bytes.
  virtual KvWriter Writer(int) { return {}; }
  virtual void CommitRows(std::span<const int32_t> rows) = 0;
  virtual void Rollback() = 0;
  bool transaction_open() const { return transaction_open_; }

 private:
  bool transaction_open_ = false;
};

// Appends `n` positions of made-up keys and values, ordinary small numbers in every cache type: for measuring
// time, which does not depend on them. kResourceExhausted leaves the cache as it was.
Status CommitMadeUp(KvCache& cache, int n_layer, int n);

}  // namespace longspec
