/* vmcompute.dll: the old interface, of which only the version is asked for. */
#include <windows.h>
#include <objbase.h>
#include <stdlib.h>

#include "simulator.h"

__declspec(dllexport) HRESULT WINAPI HNSCall(PCWSTR method, PCWSTR path, PCWSTR object, PWSTR *response)
{
    char *answer;
    unsigned long code;
    int length;

    if (lstrcmpW(method, L"GET") != 0 || lstrcmpW(path, L"/globals/version") != 0)
        return E_NOTIMPL;
    code = simulate("HNSCall", "", "", &answer);
    length = MultiByteToWideChar(CP_UTF8, 0, answer, -1, NULL, 0);
    *response = CoTaskMemAlloc((size_t)length * sizeof(WCHAR));
    MultiByteToWideChar(CP_UTF8, 0, answer, -1, *response, length);
    free(answer);
    return (HRESULT)code;
}
