@echo off
rem Builds Multiverso.dll with CMake and the compiler of Visual Studio 2019 or newer. Run it in an "x64
rem Native Tools Command Prompt", which has both on its PATH.
rem
rem   build_dll.bat [FOLDER]     builds in FOLDER; the default is build\windows
setlocal
set "folder=%~1"
if "%folder%"=="" set "folder=%~dp0build\windows"
where cmake >nul 2>nul
if errorlevel 1 (
  echo expected cmake on the PATH, found none: use an "x64 Native Tools Command Prompt" 1>&2
  exit /b 1
)
cmake -S "%~dp0." -B "%folder%" -DBUILD_TESTING=OFF -DCMAKE_BUILD_TYPE=Release
if errorlevel 1 exit /b 1
cmake --build "%folder%" --config Release --parallel
if errorlevel 1 exit /b 1
cmake --install "%folder%" --config Release --prefix "%folder%\installed"
if errorlevel 1 exit /b 1
echo Multiverso.dll is in %folder%\installed\bin
