// SPDX-License-Identifier: Apache-2.0
#include "src/report/packed.h"

#include <boost/beast/zlib/deflate_stream.hpp>

#include "lockstep/diagnostic.h"

namespace lockstep::report {

namespace {

namespace zlib = boost::beast::zlib;

std::string base64(std::string_view bytes) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    unsigned value = 0;
    for (std::size_t byte = at; byte < at + 3; ++byte)
      value = value << 8 | (byte < bytes.size() ? static_cast<unsigned char>(bytes[byte]) : 0u);
    for (std::size_t digit = 0; digit < 4; ++digit)
      out += at + digit > bytes.size() ? '=' : digits[value >> (18 - 6 * digit) & 63];
  }
  return out;
}

}  // namespace

std::string packed(std::string_view text) {
  constexpr int best_level = 9, widest_window = 15, most_memory = 9;
  zlib::deflate_stream stream;
  stream.reset(best_level, widest_window, most_memory, zlib::Strategy::normal);
  std::string out(zlib::deflate_upper_bound(text.size()), '\0');
  zlib::z_params buffers;
  buffers.next_in = text.data();
  buffers.avail_in = text.size();
  buffers.next_out = out.data();
  buffers.avail_out = out.size();
  boost::system::error_code end;
  stream.write(buffers, zlib::Flush::finish, end);
  if (end != zlib::error::end_of_stream) throw InternalError("cannot pack a page: " + end.message());
  return base64(std::string_view(out).substr(0, buffers.total_out));
}

}  // namespace lockstep::report
