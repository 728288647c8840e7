// Progress: one line that changes in place on a terminal, plain lines elsewhere.
//
//   [#########-----------------]  35 %  softnic  training 3/6  loss 0.5025  AUC 0.7993  5,895 ops/s
//
// One thread. Writes to standard error, so that standard output holds results only.
#pragma once

#include <string>

namespace be::apps {

class Progress {
 public:
  Progress();
  ~Progress() { clear(); }

  void show(double fraction, const std::string& text);  // on a terminal only
  void note(const std::string& text);                   // a line that stays, everywhere
  void clear();                                         // takes the changing line away

 private:
  const bool terminal_;
  bool shown_ = false;
};

}  // namespace be::apps
