// Posted transfers in order, linked through Transfer::next: posting allocates nothing.
#pragma once

#include <cstdint>

#include "collectives/transport.h"

namespace lockstep::tcp {

class TransferList {
public:
    bool empty() const { return first_ == nullptr; }
    Transfer* first() const { return first_; }

    void append(Transfer& transfer) {
        transfer.next = nullptr;
        (first_ == nullptr ? first_ : last_->next) = &transfer;
        last_ = &transfer;
    }

    // The oldest one with this tag; nullptr: none.
    Transfer* find(uint64_t tag) const {
        Transfer* each = first_;
        while (each != nullptr && each->tag != tag) each = each->next;
        return each;
    }

    void remove(const Transfer& transfer) {
        Transfer* before = nullptr;
        for (Transfer* each = first_; each != &transfer; each = each->next) before = each;
        (before == nullptr ? first_ : before->next) = transfer.next;
        if (last_ == &transfer) last_ = before;
    }

    void clear() { first_ = last_ = nullptr; }

private:
    Transfer* first_ = nullptr;
    Transfer* last_ = nullptr;
};

}  // namespace lockstep::tcp
