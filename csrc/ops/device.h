// What the rest of the program may ask about the CUDA back end; needs no CUDA header.
#pragma once
#include <string>

namespace calirare {

bool cuda_compiled();                        // were the kernels built?
int cuda_device_count(std::string* reason);  // 0, with a reason, when there is no driver or no device; never throws

}  // namespace calirare
